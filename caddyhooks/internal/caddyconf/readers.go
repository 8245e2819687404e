package caddyconf

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
)

// Reader reads the value of a directive: all arguments on the rest of its line.
type Reader[T any] func(d *caddyfile.Dispenser) (T, error)

// Present reads no argument, and is true: the directive sets a flag by being there.
func Present(d *caddyfile.Dispenser) (bool, error) {
	directive := d.Val()
	if d.NextArg() {
		return false, d.Errf("%s takes no argument", directive)
	}
	return true, nil
}

// Unset ends an error about an argument that is missing or empty. Caddy replaces {$NAME} before any directive sees it.
const Unset = "; Caddy replaces {$NAME} by nothing if the environment variable NAME is not set"

// Text reads one argument, which must not be empty. Caddy's shorthands for placeholders are put back as they were written: in
// the texts of these modules, {host} is a key of a payload.
func Text(d *caddyfile.Dispenser) (string, error) {
	directive := d.Val()
	text, err := TextOrEmpty(d)
	if err == nil && text == "" {
		err = d.Errf("the argument of %s is empty%s", directive, Unset)
	}
	return text, err
}

// TextOrEmpty is Text for an argument that may be empty.
func TextOrEmpty(d *caddyfile.Dispenser) (string, error) {
	directive := d.Val()
	if !d.NextArg() {
		return "", d.Errf("%s takes an argument, and there is none%s", directive, Unset)
	}
	text := shorthand.Undo(d.Val())
	if d.NextArg() {
		return "", d.Errf("%s%s", directive, takesOne)
	}
	return text, nil
}

// takesOne quotes no argument: each may be a secret.
const takesOne = ` takes one argument; a text with spaces stands in "double quotes" or backquotes`

// Word reads one text, which must not be blank.
func Word(d *caddyfile.Dispenser) (string, error) {
	directive := d.Val()
	text, err := Text(d)
	if err == nil && strings.TrimSpace(text) == "" {
		err = d.Errf("the argument of %s is blank%s", directive, Unset)
	}
	return text, err
}

// Template reads one text with placeholders for the values of a payload, which must not be blank.
func Template(d *caddyfile.Dispenser) (string, error) {
	start := *d // the text may have many lines
	args := d.RemainingArgs()
	switch {
	case len(args) > 1:
		return "", start.Errf("%s%s", start.Val(), takesOne)
	case len(args) == 0 || strings.TrimSpace(args[0]) == "":
		return "", start.Errf("%s is empty: Caddy replaces {$…} by environment variables; write { $.issue.title } with a space", start.Val())
	}
	return shorthand.Undo(args[0]), nil
}

// Prose returns a reader of a text for an agent or a person. In double quotes, \n is a line break and \t a tab, as people mean them: to
// Caddy they are a backslash and a letter. Within braces they stay, since pipes, paths and JSON have escapes of their own. Backquotes and
// heredocs keep everything as it is written.
func Prose(read Reader[string]) Reader[string] {
	return func(d *caddyfile.Dispenser) (string, error) {
		ahead := *d
		quoted := ahead.NextArg() && ahead.ValRaw() == `"`+ahead.Val()+`"`
		text, err := read(d)
		if quoted {
			text = readEscapes(text)
		}
		return text, err
	}
}

// readEscapes replaces \n and \t outside of braces that have their end. A backslash before another one stays.
func readEscapes(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	deeper := make([]int, len(text)+1) // how many pairs of braces begin at a byte, less those that end before it
	var open []int
	for i := range len(text) {
		switch {
		case text[i] == '{':
			open = append(open, i)
		case text[i] == '}' && len(open) > 0:
			last := len(open) - 1
			deeper[open[last]]++
			deeper[i+1]--
			open = open[:last]
		}
	}
	escapes := strings.NewReplacer(`\\`, `\\`, `\n`, "\n", `\t`, "\t")
	var read strings.Builder
	begin, depth := 0, 0
	for i := range deeper {
		before := depth
		depth += deeper[i]
		switch {
		case before == 0 && (depth > 0 || i == len(text)):
			read.WriteString(escapes.Replace(text[begin:i]))
			begin = i
		case before > 0 && depth == 0:
			read.WriteString(text[begin:i])
			begin = i
		}
	}
	return read.String()
}

// List reads one or more texts, none of which may be empty.
func List(d *caddyfile.Dispenser) ([]string, error) {
	directive := d.Val()
	list := d.RemainingArgs()
	if len(list) == 0 {
		return nil, d.Errf("%s takes an argument, and there is none%s", directive, Unset)
	}
	for i, text := range list {
		if text == "" {
			return nil, d.Errf("an argument of %s is empty%s", directive, Unset)
		}
		list[i] = shorthand.Undo(text)
	}
	return list, nil
}

// Secret reads one secret, or the placeholder for it. See ResolveSecret.
func Secret(d *caddyfile.Dispenser) (string, error) {
	directive := d.Val()
	secret, err := Text(d)
	if err != nil || strings.TrimSpace(secret) == "" {
		return "", d.Errf("%s takes one secret, which must not be blank%s", directive, Unset)
	}
	return secret, nil
}

// Secrets reads one or more secrets, or placeholders for them.
func Secrets(d *caddyfile.Dispenser) ([]string, error) {
	secrets, err := List(d)
	if err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		if strings.TrimSpace(secret) == "" {
			return nil, d.Err("a secret must not be blank" + Unset)
		}
	}
	return secrets, nil
}

// parsed returns a reader of a text that parse understands. refused says what else it should be.
func parsed[T any](parse func(text string) (T, bool), refused func(text string) string) Reader[T] {
	return func(d *caddyfile.Dispenser) (value T, err error) {
		text, err := Text(d)
		if err != nil {
			return value, err
		}
		value, ok := parse(text)
		if !ok {
			return value, d.Errf("'%s' is not %s", text, refused(text))
		}
		return value, nil
	}
}

// Number returns a reader of whole numbers of at least the given one.
func Number(least int) Reader[int] {
	return parsed(func(text string) (int, bool) {
		n, err := strconv.Atoi(text)
		return n, err == nil && n >= least
	}, func(string) string { return fmt.Sprintf("a whole number of at least %d", least) })
}

// Bytes returns a reader of sizes from one byte to the given number of megabytes.
func Bytes(megabytes Size) Reader[Size] {
	return parsed(func(text string) (Size, bool) {
		size, err := ParseSize(text)
		return size, err == nil && size >= 1 && size <= megabytes<<20
	}, func(string) string { return fmt.Sprintf("a size from 1 byte to %dMB, such as 64KB", megabytes) })
}

// BytesFrom returns a reader of sizes of at least the given one.
func BytesFrom(megabytes Size) Reader[Size] {
	return parsed(func(text string) (Size, bool) {
		size, err := ParseSize(text)
		return size, err == nil && size >= megabytes<<20
	}, func(string) string { return fmt.Sprintf("a size of at least %dMB, such as 256MB", megabytes) })
}

// Duration returns a reader of durations of at least the given one.
func Duration(least time.Duration) Reader[caddy.Duration] {
	return parsed(func(text string) (caddy.Duration, bool) {
		duration, err := caddy.ParseDuration(text)
		return caddy.Duration(duration), err == nil && duration >= least
	}, func(text string) string { return fmt.Sprintf("a duration of at least %s%s", least, DurationHint(text)) })
}

// DurationOr returns a reader of a duration of at least a second that may be left out: it is usual then.
func DurationOr(usual time.Duration) Reader[caddy.Duration] {
	return func(d *caddyfile.Dispenser) (caddy.Duration, error) {
		if d.CountRemainingArgs() == 0 {
			return caddy.Duration(usual), nil
		}
		return Duration(time.Second)(d)
	}
}

// DurationHint ends an error about a text that is not the duration wanted: a number lacks its unit.
func DurationHint(text string) string {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil && n > 0 {
		return fmt.Sprintf("; write %ds", n)
	}
	return ", such as 30s"
}

// Seconds reads a duration of one or more whole seconds.
func Seconds(d *caddyfile.Dispenser) (int, error) {
	duration, err := Duration(time.Second)(d)
	if err == nil && time.Duration(duration)%time.Second != 0 {
		err = d.Errf("'%s' is not a whole number of seconds", time.Duration(duration))
	}
	return int(time.Duration(duration) / time.Second), err
}

// File reads the file that the argument names, relative to the Caddyfile.
func File(d *caddyfile.Dispenser) (string, error) {
	path, err := Text(d)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(d.File()), path)
	}
	data, err := ReadRegularFile(path)
	if err != nil {
		return "", d.Errf("reading the file %s: %v", path, err)
	}
	return string(data), nil
}

// Path reads a path, which is relative to the Caddyfile. One with placeholders stays as it is.
func Path(d *caddyfile.Dispenser) (string, error) {
	path, err := Text(d)
	if err == nil && !filepath.IsAbs(path) && !HasPlaceholder(path) {
		path = filepath.Join(filepath.Dir(d.File()), path)
	}
	return path, err
}

// Module returns a reader of `<module> [<args...>] { … }`, a guest module of the namespace. The module's JSON has its name
// in the member inlineKey.
func Module(namespace, inlineKey string) Reader[json.RawMessage] {
	return ModuleWithRoutes(namespace, inlineKey, httpcaddyfile.Helper{})
}

// A RouteReader is a guest module whose block may hold directives of Caddy's HTTP server.
type RouteReader interface {
	// UnmarshalRoutes does what UnmarshalCaddyfile does for other guests. The helper's dispenser is that of the guest.
	UnmarshalRoutes(helper httpcaddyfile.Helper) error
}

// ModuleWithRoutes is Module for a namespace of which some guests are RouteReaders. The helper is that of the directive in
// which the guest stands.
func ModuleWithRoutes(namespace, inlineKey string, helper httpcaddyfile.Helper) Reader[json.RawMessage] {
	return func(d *caddyfile.Dispenser) (json.RawMessage, error) {
		there := "there are " + strings.Join(ModuleNames(namespace), ", ")
		if !d.NextArg() {
			return nil, d.Errf("the kind of %s is missing; %s%s", inlineKey, there, Unset)
		}
		name := d.Val()
		info, err := caddy.GetModule(namespace + "." + name)
		if err != nil {
			// The word is not quoted: if the name was left out, it may be a token.
			return nil, d.Errf("there is no such %s; %s", inlineKey, there)
		}
		var module any = info.New()
		if guest, ok := module.(RouteReader); ok {
			helper.Dispenser = d.NewFromNextSegment()
			err = guest.UnmarshalRoutes(helper)
		} else {
			module, err = caddyfile.UnmarshalModule(d, namespace+"."+name)
		}
		if err != nil {
			return nil, err
		}
		return caddyconfig.JSONModuleObject(module, inlineKey, name, nil), nil
	}
}

// ModuleNames are the names of the guest modules of a namespace.
func ModuleNames(namespace string) (names []string) {
	for _, module := range caddy.GetModules(namespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

// Checked returns a reader that refuses a value for which check returns an error.
func Checked[T any](read Reader[T], check func(T) error) Reader[T] {
	return func(d *caddyfile.Dispenser) (T, error) {
		value, err := read(d)
		if err == nil {
			if err = check(value); err != nil {
				err = d.WrapErr(err)
			}
		}
		return value, err
	}
}

// CheckedText is Checked for a text in which placeholders are replaced when the configuration is loaded. A text with a
// placeholder is not checked here: its value depends on the machine.
func CheckedText(check func(string) error) Reader[string] {
	return Checked(Text, func(text string) error {
		if HasPlaceholder(text) {
			return nil
		}
		return check(text)
	})
}

// HasPlaceholder reports whether a text may hold a placeholder.
func HasPlaceholder(text string) bool { return strings.Contains(text, "{") }

// Pointer returns a reader whose value is not nil, for settings that can be unset.
func Pointer[T any](read Reader[T]) Reader[*T] {
	return func(d *caddyfile.Dispenser) (*T, error) {
		value, err := read(d)
		return &value, err
	}
}
