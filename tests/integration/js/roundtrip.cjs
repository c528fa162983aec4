// Sends events with the CloudEvents SDK in its three modes; prints the ids as they come back over both streams.
const { CloudEvent, HTTP, Mode } = require("cloudevents");
const { EventSource } = require("eventsource");
const WebSocket = require("ws");
const assert = require("node:assert");

const [url, id] = process.argv.slice(2);
const data = { price: 101.25, names: ["a", "é"] };
const made = (id) =>
  new CloudEvent({ id, source: "/js", type: "com.example.js.made", subject: "x y", shard: "7", time: "2026-11-15T10:30:00.000Z", data });

async function send(message) {
  const answer = await fetch(`${url}/events`, { method: "POST", headers: message.headers, body: message.body });
  assert.strictEqual(answer.status, 202, await answer.text());
}

function check(text) {
  const event = HTTP.toEvent({ headers: { "content-type": "application/cloudevents+json" }, body: text });
  event.validate();
  assert.deepStrictEqual(event.data, data);
  assert.strictEqual(event.subject, "x y");
  assert.strictEqual(event.shard, "7");
  assert.strictEqual(event.catchmentids, id);
  assert.strictEqual(new Date(event.time).toISOString(), "2026-11-15T10:30:00.000Z");
  return event.id;
}

const COUNT = 4;
const overEventSource = () =>
  new Promise((resolve) => {
    const found = [];
    const source = new EventSource(`${url}/subscriptions/${id}/events`);
    source.onopen = () => opened.sse();
    source.onmessage = (event) => {
      found.push(check(event.data));
      if (found.length === COUNT) {
        source.close();
        resolve(found);
      }
    };
  });
const overWebSocket = () =>
  new Promise((resolve, reject) => {
    const found = [];
    const socket = new WebSocket(`${url.replace("http:", "ws:")}/subscriptions/${id}/ws`, "cloudevents.json");
    socket.on("open", () => opened.websocket());
    socket.on("error", reject);
    socket.on("message", (text) => {
      found.push(check(text.toString()));
      if (found.length === COUNT) {
        socket.close();
        resolve(found);
      }
    });
  });

const opened = {};
const ready = ["sse", "websocket"].map((name) => new Promise((resolve) => (opened[name] = resolve)));

async function main() {
  const streams = Promise.all([overEventSource(), overWebSocket()]);
  await Promise.all(ready);
  await send(HTTP.structured(made("structured")));
  await send(HTTP.binary(made("binary")));
  const body = JSON.stringify([made("batch-1"), made("batch-2")]);
  await send({ headers: { "content-type": "application/cloudevents-batch+json" }, body });
  const [sse, websocket] = await streams;
  process.stdout.write(JSON.stringify({ sse, websocket }));
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
