// Command xcaddy is Caddy with this module built in:
//
//	go run ./xcaddy run --config Caddyfile.example
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
