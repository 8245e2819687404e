// An agent for tests, on the SDK of the A2A project. The last line of a message says what it does.
// Usage: node server.mjs <folder with node_modules> <port> <JSONRPC|HTTP+JSON> <stream|whole>
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const [folder, port, binding, form] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } = load('@a2a-js/sdk');
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = load('@a2a-js/sdk/server');
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = load('@a2a-js/sdk/server/express');
const express = load('express');

const contexts = new Map(); // what was said in each
const waiting = new Map(); // by task: who hears that it is cancelled
const cancelled = [];

const agent = {
	async execute(request, bus) {
		const { taskId, contextId } = request;
		const names = { taskId, contextId };
		const lines = request.userMessage.parts[0].content.value.split('\n');
		const [word, ...rest] = lines.at(-1).split(' ');
		const message = (parts) => ({ messageId: randomUUID(), role: 'ROLE_AGENT', ...names, parts });
		const become = (state, text) => bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON(
			{ ...names, status: { state: `TASK_STATE_${state}`, message: text && message([{ text }]) } })));
		const artifact = (artifactId, parts, append = false) => bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(
			{ ...names, append, artifact: { artifactId, parts } })));

		if (word === 'say') {
			const { contextId: context } = names;
			const said = [...(contexts.get(context) ?? []), rest.join(' ')];
			contexts.set(context, said);
			bus.publish(AgentEvent.message(Message.fromJSON(message([{ text: said.join(', ') }]))));
			return bus.finished();
		}
		bus.publish(AgentEvent.task(Task.fromJSON({ id: taskId, contextId, status: { state: 'TASK_STATE_SUBMITTED' } })));
		become('WORKING', 'one moment');
		switch (word) {
			case 'stream':
				rest.forEach((piece, i) => artifact('a', [{ text: piece }], i > 0));
				artifact('b', [{ text: 'the end' }]);
				become('COMPLETED');
				break;
			case 'json':
				artifact('a', [{ data: JSON.parse(rest.join(' ')) }]);
				become('COMPLETED', 'see the data');
				break;
			case 'hang':
				artifact('a', [{ text: 'half of it' }]);
				await new Promise((wake) => waiting.set(taskId, wake));
				become('CANCELED');
				break;
			case 'become':
				become(rest[0], rest.slice(1).join(' '));
				break;
			default:
				throw new Error(`no such word: ${word}`);
		}
		bus.finished();
	},
	async cancelTask(taskId) {
		cancelled.push(taskId);
		waiting.get(taskId)?.();
	},
};

const card = AgentCard.fromJSON({
	name: 'tester', description: 'for tests', version: '1', skills: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
	capabilities: { streaming: form === 'stream' },
	supportedInterfaces: [{ url: `http://127.0.0.1:${port}/a2a`, protocolBinding: binding, protocolVersion: '1.0' }],
});
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), agent);
const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.get('/cancelled', (_, res) => res.json(cancelled));
app.use('/a2a', binding === 'JSONRPC' ? jsonRpcHandler(options) : restHandler(options));
app.listen(Number(port), '127.0.0.1');
