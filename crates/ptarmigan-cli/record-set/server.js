// Load: Node.js with an HTTP server that answers 4,000 requests with JSON, to eight clients of its own.
const http = require('http');

const server = http.createServer((request, response) => {
  const rows = Array.from({ length: 400 }, (_, row) => ({ row, name: `row ${row} of ${request.url}` }));
  response.end(JSON.stringify(rows));
});

function get(n, socketPath, agent) {
  return new Promise((done, failed) => {
    http.get({ socketPath, path: `/${n}`, agent }, (response) => {
      response.resume();
      response.on('end', done);
    }).on('error', failed);
  });
}

async function client(path, number) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  for (let n = 0; n < 500; n++) await get(number * 500 + n, path, agent);
  agent.destroy();
}

const path = `${require('os').tmpdir()}/record-set-${process.pid}`;
server.listen(path, async () => {
  await Promise.all(Array.from({ length: 8 }, (_, number) => client(path, number)));
  server.close();
});
