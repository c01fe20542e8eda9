// Symptom: spawn of a server with a large heap blocks its event loop.
// Cure: a small helper process, started first, that starts the others.
// Threads: nodejs/node#14917, nodejs/node#21234
const { spawn, spawnSync } = require('child_process');

const COUNT = 40;
const helper = process.argv.length > 2;
const loop = `for (let i = 0; i < ${COUNT}; i++) require('child_process').spawnSync('/bin/true')`;
const started = helper ? spawn(process.execPath, ['-e', loop]) : null;
const heap = [];
for (let i = 0; i < 3; i++) {
  const block = Buffer.alloc(64 << 20);
  for (let at = 0; at < block.length; at += 4096) block[at] = 1;
  heap.push(block);
}
if (!helper) for (let i = 0; i < COUNT; i++) spawnSync('/bin/true');
else started.on('exit', () => process.exit(heap.length === 3 ? 0 : 1));
