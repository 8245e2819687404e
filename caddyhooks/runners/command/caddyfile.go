package command

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

// UnmarshalCaddyfile parses:
//
//	runner command [<preset>] [<program>] [<arg>...] {
//		stdin      message|json
//		reply      text | json <jsonpath> | lines <condition> <jsonpath>
//		model      <model>
//		tier       <tier> <model>
//		env        <NAME> <value>
//		pass_env   <NAME>...
//		dir        <path>
//		user       <name>
//		home       <path>
//		fail_on    <exit code>...
//		busy_on    <exit code>...
//		max_output <size>
//	}
//
// The name of a preset is the preset. A program of that name is written as ./claude or with its full path.
func (c *Command) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	place := *d
	words := d.RemainingArgs()
	for i, word := range words {
		words[i] = shorthand.Undo(word)
	}
	if len(words) > 0 && programPresets[words[0]] != nil {
		c.Preset, words = words[0], words[1:]
	}
	if c.Args = words; len(words) > 0 {
		c.Args[0] = relativeTo(place.File(), words[0])
	}
	const most = 1 << 10 // megabytes
	directives := []caddyconf.Directive{
		caddyconf.Set("stdin", &c.Stdin, caddyconf.Checked(caddyconf.Text, checkStdin)),
		{Word: "reply", Read: c.Reply.read},
	}
	directives = append(directives, c.ByTier.Directives()...)
	directives = append(directives, c.Program.Directives()...)
	directives = append(directives,
		caddyconf.Set("fail_on", &c.FailOn, readExitCodes),
		caddyconf.Set("busy_on", &c.BusyOn, readExitCodes),
		caddyconf.Set("max_output", &c.MaxOutput, caddyconf.Bytes(most)))
	if err := caddyconf.ReadBlock(d, "runner command", directives...); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return place.Errf("runner command: %w", err)
	}
	return nil
}

// relativeTo is the path of a program that is relative to the Caddyfile. A name without a folder is looked up in PATH later.
func relativeTo(caddyfile, program string) string {
	if !strings.Contains(program, "/") || strings.HasPrefix(program, "-") || filepath.IsAbs(program) || caddyconf.HasPlaceholder(program) {
		return program
	}
	path := filepath.Join(filepath.Dir(caddyfile), program)
	if !strings.Contains(path, "/") { // which is no name to look up
		path = "./" + path
	}
	return path
}

// readExitCodes reads exit codes, and ranges of them such as 10-19.
func readExitCodes(d *caddyfile.Dispenser) (codes []int, err error) {
	directive := d.Val()
	words, err := caddyconf.List(d)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		first, last, isRange := strings.Cut(word, "-")
		from, errFrom := strconv.Atoi(first)
		to, errTo := from, error(nil)
		if isRange {
			to, errTo = strconv.Atoi(last)
		}
		if errFrom != nil || errTo != nil || checkExitCode(from) != nil || checkExitCode(to) != nil || from > to {
			return nil, d.Errf("%s takes exit codes from 1 to 255, as in: %[1]s 2 10-19", directive)
		}
		for code := from; code <= to; code++ {
			codes = append(codes, code)
		}
	}
	return codes, nil
}
