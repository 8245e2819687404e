// Reads a JSON list of texts, and prints what in each of them acts on others as GitHub's Markdown is understood: pictures, HTML, and
// what remark-github makes links of.
import { text as readAll } from "node:stream/consumers";
import { unified } from "unified";
import remarkParse from "remark-parse";
import remarkGfm from "remark-gfm";
import remarkGithub from "remark-github";

const acts = "https://acts.example/";
const processor = unified().use(remarkParse).use(remarkGfm)
	.use(remarkGithub, { repository: "acme/widgets", buildUrl: (values) => (values.type === "commit" || values.type === "compare" ? false : acts + values.type) });
const found = [];
for (const text of JSON.parse(await readAll(process.stdin))) {
	const seen = new Set();
	(function walk(node) {
		if (node.type === "html" || node.type === "image" || node.type === "imageReference") seen.add(node.type);
		if (node.type === "link" && node.url.startsWith(acts)) seen.add(node.url.slice(acts.length));
		(node.children ?? []).forEach(walk);
	})(processor.runSync(processor.parse(text)));
	found.push([...seen].sort());
}
console.log(JSON.stringify(found));
