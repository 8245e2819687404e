package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/models"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// UnmarshalCaddyfile parses:
//
//	runner openai [<preset>|<url>] {
//		url             <base>
//		key             <secret>
//		model           <model>
//		tier            <tier> <model>
//		system          <text>
//		system_file     <path>
//		history         <turns> [<bytes>]
//		memory          <preset> [history <turns>] [model <model>] [header <name> <value>]...
//		session_header  <name> [<prefix>]
//		session_from    <name>
//		model_header    <name>
//		response_format json_schema|json_object|off
//		stream          on|off
//		body            <json>
//		background      [<duration>]
//		idle_timeout    <duration>
//		header          <name> <value>
//	}
//
// The lines of the block go before the preset.
func (o *OpenAI) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	var preset serverPreset
	place := *d
	if err := httpcall.CheckArguments(d, "openai", "a preset or a URL", ""); err != nil {
		return err
	}
	if d.NextArg() {
		first := shorthand.Undo(d.Val())
		if strings.Contains(first, "://") || caddyconf.HasPlaceholder(first) {
			if err := checkedURL(d, first); err != nil {
				return err
			}
			o.URL = first
		} else {
			var ok bool
			// The word is not quoted: it may be a key.
			if preset, ok = serverPresets[first]; !ok {
				return d.Errf("there is no such preset; there are %s; a URL starts with http:// or https://", strings.Join(presetNames(), ", "))
			}
		}
	}
	systemFile := caddyconf.Set("system_file", &o.SystemFile, caddyconf.Path)
	systemFile.InsteadOf = "system"
	if err := caddyconf.ReadBlock(d, "runner openai",
		caddyconf.Directive{Word: "url", Read: o.readURL},
		caddyconf.Set("key", &o.Key, caddyconf.Secret),
		caddyconf.Set("model", &o.Model, caddyconf.Word),
		models.TierDirective(&o.Tiers),
		caddyconf.Set("system", &o.System, caddyconf.Prose(caddyconf.Word)), systemFile,
		caddyconf.Directive{Word: "history", Read: o.readHistory},
		caddyconf.Directive{Word: "memory", Read: o.readMemory, Repeatable: true},
		caddyconf.Directive{Word: "session_header", Read: o.readSessionHeader},
		caddyconf.Set("session_from", &o.SessionFrom, caddyconf.Checked(caddyconf.Text, checkOptionHeader)),
		caddyconf.Set("model_header", &o.ModelHeader, caddyconf.Checked(caddyconf.Text, checkOptionHeader)),
		caddyconf.Set("response_format", &o.ResponseFormat, caddyconf.Checked(caddyconf.Text, checkResponseFormat)),
		caddyconf.Set("stream", &o.Stream, readOnOff),
		caddyconf.Directive{Word: "body", Read: o.readBody},
		caddyconf.Set("background", &o.Background, caddyconf.DurationOr(turns.LaterTime)),
		caddyconf.Set("idle_timeout", &o.IdleTimeout, caddyconf.Duration(time.Second)),
		httpcall.HeaderDirective(&o.Headers, httpcall.CheckHeader),
	); err != nil {
		return err
	}
	preset.fill(o)
	if o.URL == "" {
		return place.Errf("runner openai needs a preset or a URL; there are the presets %s", strings.Join(presetNames(), ", "))
	}
	if err := o.check(); err != nil {
		return place.Errf("runner openai: %w", err)
	}
	return nil
}

func checkedURL(d *caddyfile.Dispenser, text string) error {
	if caddyconf.HasPlaceholder(text) {
		return nil
	}
	if err := checkBaseURL(text); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (o *OpenAI) readURL(d *caddyfile.Dispenser) error {
	if o.URL != "" {
		return d.Err("url is set already")
	}
	text, err := caddyconf.Text(d)
	if err != nil {
		return err
	}
	o.URL = text
	return checkedURL(d, text)
}

func (o *OpenAI) readHistory(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	if len(words) < 1 || len(words) > 2 {
		return d.Err("history takes a number of turns, and the bytes in them if you like, as in: history 20 64KB" + caddyconf.Unset)
	}
	most, err := readTurns(d, words[0])
	if err != nil {
		return err
	}
	o.History = &most
	if len(words) == 2 {
		const most = 8 << 20
		if o.HistoryBytes, err = caddyconf.ParseSize(words[1]); err != nil || o.HistoryBytes < 1 || o.HistoryBytes > most {
			return d.Errf("'%s' is not a size from 1 byte to 8MB, such as 64KB", words[1])
		}
	}
	return nil
}

func readTurns(d *caddyfile.Dispenser, word string) (int, error) {
	const most = 1000
	turns, err := strconv.Atoi(word)
	if err != nil || turns < 0 || turns > most {
		return 0, d.Errf("'%s' is not a number of turns from 0 to %d", word, most)
	}
	return turns, nil
}

func (o *OpenAI) readMemory(d *caddyfile.Dispenser) error {
	const grammar = "memory takes a memory preset, and then history <turns>, model <model> or header <name> <value>"
	words := d.RemainingArgs()
	if len(words) < 2 {
		return d.Err(grammar)
	}
	preset, words := words[0], words[1:]
	if err := checkMemoryPreset(preset); err != nil {
		return d.WrapErr(err)
	}
	if _, ok := o.Memory[preset]; ok {
		return d.Errf("memory %s is set already", preset)
	}
	var memory Memory
	for len(words) > 0 {
		switch word := words[0]; {
		case word == "history" && len(words) >= 2 && memory.History == nil:
			turns, err := readTurns(d, words[1])
			if err != nil {
				return err
			}
			memory.History, words = &turns, words[2:]
		case word == "model" && len(words) >= 2 && words[1] != "" && memory.Model == "":
			memory.Model, words = shorthand.Undo(words[1]), words[2:]
		case word == "header" && len(words) >= 3:
			if err := addHeader(d, &memory.Headers, words[1], words[2]); err != nil {
				return err
			}
			words = words[3:]
		default: // the word is not quoted: it may be the value of a header
			return d.Err(grammar + ", each once" + caddyconf.Unset)
		}
	}
	if o.Memory == nil {
		o.Memory = make(map[string]Memory)
	}
	o.Memory[preset] = memory
	return nil
}

func addHeader(d *caddyfile.Dispenser, headers *map[string]string, name, value string) error {
	name = http.CanonicalHeaderKey(name)
	if err := httpcall.CheckHeader(name); err != nil {
		return d.WrapErr(err)
	}
	if value = shorthand.Undo(value); value == "" {
		return d.Errf("the value of header %s is empty%s", name, caddyconf.Unset)
	}
	if _, ok := (*headers)[name]; ok {
		return d.Errf("header %s is set already", name)
	}
	if *headers == nil {
		*headers = make(map[string]string)
	}
	(*headers)[name] = value
	return nil
}

func (o *OpenAI) readSessionHeader(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	if len(words) < 1 || len(words) > 2 {
		return d.Err("session_header takes the name of a header, and a prefix if you like")
	}
	if err := checkOptionHeader(words[0]); err != nil {
		return d.WrapErr(err)
	}
	o.SessionHeader = words[0]
	if len(words) == 2 {
		o.SessionPrefix = words[1]
	}
	return nil
}

func (o *OpenAI) readBody(d *caddyfile.Dispenser) error {
	ahead := *d
	if len(ahead.RemainingArgs()) > 1 {
		return d.Err("body takes one JSON object, which stands in backquotes, as in: body `{\"temperature\": 0.2}`")
	}
	text, err := caddyconf.Text(d)
	if err != nil {
		return err
	}
	if _, err := parseMembers([]byte(text), chatMembers); err != nil { // check knows whether it is for the background
		return d.WrapErr(err)
	}
	o.Body = json.RawMessage(text)
	return nil
}

func readOnOff(d *caddyfile.Dispenser) (*bool, error) {
	directive := d.Val()
	text, err := caddyconf.Text(d)
	if err == nil && text != "on" && text != "off" {
		err = d.Errf("%s must be on or off", directive)
	}
	return new(text == "on"), err
}
