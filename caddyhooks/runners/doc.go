// Package runners has the runners that come with the hooks. Echo answers by itself, and HTTP asks a service: both are here. The
// larger ones are packages below this one, which it links in: openai asks a model or a gateway, a2a an agent that speaks the
// Agent2Agent protocol, acp an agent on this machine that stays, and command starts a program for each turn. What they share is in
// packages below runners/internal, which import no runner.
//
// A runner is a guest module of the namespace hooks.runners that implements engine.Runner. To add one here, write a file of
// its name, or a package if it is large, with
//
//   - a struct whose exported fields are its configuration, with doc comments for operators,
//   - init, CaddyModule and, as needed, Provision, Validate and Cleanup,
//   - UnmarshalCaddyfile, which describes the block to caddyconf.ReadBlock,
//   - Usage, whose texts follow "runner <name>" where somebody has to choose one,
//   - Run, which returns when the turn is over or its context is done,
//   - Uses, as in engine.Selective, unless every model tier and memory preset makes a difference,
//
// and a test beside it. `runner <name>` in a Caddyfile and "runner": "<name>" in JSON then find it. A *engine.UnavailableError
// tells the engine that a turn has not begun and can be tried again; every other error ends the run. Errors reach logs, so
// they hold no secret. A runner can live in any other Go module as well: Caddy finds it once it is built in.
package runners

import (
	// The runners that have packages of their own.
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/a2a"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/acp"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/command"
	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/openai"
)
