// Symptom: a worker thread for each task is slow.
// Cure: workers that take one task after the other.
// Threads: nodejs/help#4486, breejs/bree#45
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const TASKS = 30;
const cured = process.argv[2] === 'cured';

function job(n) {
  let sum = 0;
  for (let i = 0; i < 20000; i++) sum += (i * n) % 7;
  return sum;
}

async function main() {
  const kept = cured && new Worker(__filename, { workerData: null });
  for (let task = 0; task < TASKS; task++) {
    await new Promise((done) => {
      if (cured) {
        kept.once('message', done);
        kept.postMessage(task);
      } else {
        new Worker(__filename, { workerData: task }).on('exit', done);
      }
    });
  }
  if (cured) await kept.terminate();
}

if (isMainThread) main();
else if (workerData === null) parentPort.on('message', (task) => parentPort.postMessage(job(task)));
else parentPort.postMessage(job(workerData));
