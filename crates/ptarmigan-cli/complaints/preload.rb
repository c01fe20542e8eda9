# Symptom: memory of forked workers of a Ruby server grows with their first requests, as nothing stays shared.
# Cure: age and compact the heap before the fork, so that collections of the workers do not write to it.
# Threads: puma/puma#2256, code-dot-org/code-dot-org#73399, phusion/passenger#2359
loaded = Array.new(200_000) { |i| { id: i, name: "name #{i}", tags: [i, i + 1] } }
if ARGV[0]
  4.times { GC.start }
  GC.compact
end
4.times do
  fork do
    20.times { |request| Array.new(40_000) { |i| "request #{request} #{i}" } }
    exit!(loaded.size.positive?)
  end
end
Process.waitall
exit!(true)
