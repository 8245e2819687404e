// Command xcaddy is Caddy with this module built in:
//
//	go run ./xcaddy run --config Caddyfile.example
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-hooks/caddy-hooks/caddyhooks"
)

func main() {
	if err := checkCaddyfile(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(caddy.ExitCodeFailedStartup)
	}
	caddycmd.Main()
}

// checkCaddyfile looks for a mistake in the Caddyfile of `run`. Caddy 2.11.7 finds it too, but writes the error to a buffer of
// its log that is never printed, and ends without a word.
func checkCaddyfile(args []string) error {
	if len(args) == 0 || args[0] != "run" {
		return nil
	}
	config, adapter := "", ""
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--config", "-c":
			config = value
		case "--adapter", "-a":
			adapter = value
		case "--envfile", "--resume": // the variables of a Caddyfile are not known here, or the file is not used
			return nil
		}
	}
	base := strings.ToLower(filepath.Base(config))
	isCaddyfile := adapter == "caddyfile" || adapter == "" && (strings.HasPrefix(base, "caddyfile") || strings.HasSuffix(base, ".caddyfile"))
	if !isCaddyfile || config == "-" {
		return nil
	}
	data, err := os.ReadFile(config) //nolint:gosec // the file that the user of the command names
	if err != nil {
		return fmt.Errorf("reading the Caddyfile: %w", err)
	}
	_, _, err = caddyconfig.GetAdapter("caddyfile").Adapt(data, map[string]any{"filename": config})
	return err
}
