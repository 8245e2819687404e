// @ts-check
const main = document.querySelector("main");
const answer = await fetch("api/me", { headers: { "X-Hooks-Desk": "1" } });
if (main) main.textContent = await answer.text();
