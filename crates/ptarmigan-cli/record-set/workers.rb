# Load: a Ruby server that loads 200,000 objects, and forks four workers with 25 requests each.
loaded = Array.new(200_000) { |i| { id: i, name: "name #{i}", tags: [i, i + 1] } }
4.times do
  fork do
    25.times { |request| loaded.sample(5_000).map { |row| "#{row[:name]} of #{request}" }.sort.join }
    exit!(true)
  end
end
Process.waitall
exit!(true)
