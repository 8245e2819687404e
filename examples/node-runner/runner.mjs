// An agent behind caddyhooks, in a few lines: it is posted a turn as JSON and streams its answer word by word.
import { createServer } from "node:http";

createServer(async (req, res) => {
  let body = "";
  for await (const chunk of req) body += chunk;
  const turn = JSON.parse(body);

  res.writeHead(200, { "Content-Type": "text/event-stream" });
  const send = (event, data) => res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  for (const word of turn.message.split(" ").reverse()) send("delta", { text: word + " " });
  send("result", {});
  res.end();
}).listen(Number(process.env.PORT ?? 9000), "127.0.0.1");
