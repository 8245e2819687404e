// Package runners has the runners that come with the hooks: Echo answers by itself, HTTP asks a service, OpenAI a model or a
// gateway, A2A an agent that speaks the Agent2Agent protocol, ACP an agent on this machine that stays, and Command starts a
// program for each turn.
//
// A runner is a guest module of the namespace hooks.runners that implements engine.Runner. To add one here, write a file of
// its name with
//
//   - a struct whose exported fields are its configuration, with doc comments for operators,
//   - init, CaddyModule and, as needed, Provision, Validate and Cleanup,
//   - UnmarshalCaddyfile, which describes the block to caddyconf.ReadBlock,
//   - Usage, whose texts follow "runner <name>" where somebody has to choose one,
//   - Run, which returns when the turn is over or its context is done,
//
// and a test beside it. `runner <name>` in a Caddyfile and "runner": "<name>" in JSON then find it. A *engine.UnavailableError
// tells the engine that a turn has not begun and can be tried again; every other error ends the run. Errors reach logs, so
// they hold no secret. A runner can live in any other Go module as well: Caddy finds it once it is built in.
package runners
