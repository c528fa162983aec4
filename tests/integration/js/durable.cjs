// Reads a durable subscription with an EventSource that knows nothing of acknowledging, and prints the ids of the events.
const { EventSource } = require("eventsource");

const [url, id, count] = process.argv.slice(2);
const found = [];
const source = new EventSource(`${url}/subscriptions/${id}/events`);
source.onmessage = (event) => {
  found.push(JSON.parse(event.data).id);
  if (found.length === Number(count)) {
    source.close();
    console.log(JSON.stringify(found));
  }
};
