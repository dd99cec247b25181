// Runs against a service: KOSMOS_URL, KOSMOS_KEY with the scopes read and ingest, and a tenant with leave.md.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient, readEvents, streamAnswer } from "../dist/index.js";

const question = "How many days of leave are there?";
const client = createClient(process.env.KOSMOS_URL, process.env.KOSMOS_KEY);

test("search has hits with their sources", async () => {
  const { data, error } = await client.POST("/v1/search", { body: { question, k: 3 } });
  assert.equal(error, undefined);
  assert.equal(data.hits[0].source, "leave.md");
});

test("answer is cited, whole and as a stream", async () => {
  const { data } = await client.POST("/v1/answer", { body: { question } });
  assert.match(data.text, /20 days/);
  const events = [];
  for await (const event of streamAnswer(client, { question })) events.push(event);
  assert.equal(events[0].event, "sources");
  assert.equal(events.at(-1).event, "done");
  const text = events.filter(({ event }) => event === "token").map(({ data }) => data.text).join("");
  assert.match(text, /20 days/);
});

test("documents are uploaded, listed and deleted", async () => {
  const uploaded = await client.POST("/v1/documents", {
    params: { query: { source: "news.md" } },
    body: "# News\n",
    bodySerializer: (body) => body,
    headers: { "content-type": "application/octet-stream" },
  });
  assert.equal(uploaded.response.status, 202);
  assert.equal(uploaded.data.state, "queued");
  const { data } = await client.GET("/v1/documents", { params: { query: { limit: 10 } } });
  assert.deepEqual(data.documents.map(({ source }) => source), ["leave.md"]);
  const missing = await client.DELETE("/v1/documents/{document_id}", {
    params: { path: { document_id: "00000000-0000-4000-8000-000000000000" } },
  });
  assert.equal(missing.response.status, 404);
  assert.equal(missing.error.type, "urn:kosmos-rag:problem:not-found");
});

test("errors are problems", async () => {
  const { error, response } = await createClient(process.env.KOSMOS_URL, "wrong").GET("/v1/documents");
  assert.equal(response.status, 401);
  assert.equal(error.title, "Credentials are missing or not valid");
  const stranger = createClient(process.env.KOSMOS_URL, "wrong");
  await assert.rejects(async () => { for await (const _ of streamAnswer(stranger, { question })); }, /not-authenticated/);
});

test("events are the same in whatever pieces they come", async () => {
  const bytes = new TextEncoder().encode(': ping\n\nevent: token\ndata: {"text": "é"}\n\nevent: done\ndata: {}\n\n');
  for (const size of [1, 7, 1000]) {
    const pieces = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.slice(i * size, (i + 1) * size));
    const events = [];
    for await (const event of readEvents(ReadableStream.from(pieces))) events.push(event);
    assert.deepEqual(events, [{ event: "token", data: { text: "é" } }, { event: "done", data: {} }]);
  }
});
