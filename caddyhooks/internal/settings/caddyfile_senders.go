package settings

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// senderDirectives are those directives of a hook that say what of a sender's requests counts, and how many.
func (h *HookBlock) senderDirectives() []hookDirective {
	return []hookDirective{
		{caddyconf.Set("from", &h.From, caddyconf.List), []string{"from"}},
		{caddyconf.Set("body", &h.Body, caddyconf.Word), []string{"body"}},
		{readConditions("only", &h.Only), []string{"only"}},
		{readConditions("skip", &h.Skip), []string{"skip"}},
		{caddyconf.Set("each", &h.Each, caddyconf.Template), []string{"each"}},
		{caddyconf.Directive{Word: "fold", Read: h.unmarshalFold}, []string{"foldSeconds", "foldMax"}},
		{caddyconf.Set("rate", &h.Rate, caddyconf.Word), []string{"rate"}},
		{caddyconf.Directive{Word: "respond", Read: h.unmarshalRespond}, []string{"respondStatus", "respondBody"}},
		{caddyconf.Set("workers", &h.Workers, caddyconf.Number(1)), []string{"workers"}},
		{caddyconf.Set("max_payload", &h.MaxPayloadSize, caddyconf.Pointer(caddyconf.Bytes(MaxPayloadLimit>>20))), []string{"maxPayloadSize"}},
	}
}

// readConditions reads a line with a condition, which may stand more than once. It is checked here, where its line is known.
func readConditions(word string, to *[]string) caddyconf.Directive {
	return caddyconf.Directive{Word: word, Repeatable: true, Read: func(d *caddyfile.Dispenser) error {
		place := *d // a condition may have several lines
		args := d.RemainingArgs()
		if len(args) == 0 || len(args) == 1 && args[0] == "" {
			return place.Errf("%s takes a condition, as in: %s header X-GitHub-Event issues%s", word, word, caddyconf.Unset)
		}
		line := conditionLine(args)
		if _, err := template.ParseCondition(line); err != nil {
			hint := ""
			if errors.Is(err, template.ErrBareWord) && len(args) > 1 {
				hint = "; a Caddyfile removes double quotes, so put the expression in backquotes"
			}
			return place.Errf("%s is refused: %v%s", word, err, hint)
		}
		*to = append(*to, line)
		return nil
	}}
}

// conditionLine writes the words of a condition as one line. Those of an expression stay as they are. The values of a header or
// query parameter may have spaces, and stand in quotes then.
func conditionLine(args []string) string {
	for i, arg := range args {
		args[i] = shorthand.Undo(arg)
	}
	source := slices.IndexFunc(args, func(arg string) bool { return arg != "not" })
	if source >= 0 && (args[source] == "header" || args[source] == "query") {
		for i, arg := range args {
			if arg == "" || arg[0] == '"' || strings.ContainsAny(arg, " \t\r\n") {
				args[i] = strconv.Quote(arg)
			}
		}
	}
	return strings.Join(args, " ")
}

func (h *HookBlock) unmarshalFold(d *caddyfile.Dispenser) error {
	fold, err := readFold(d)
	h.FoldSeconds, h.FoldMax = fold.Seconds, fold.Max
	return err
}

func (h *HookBlock) unmarshalRespond(d *caddyfile.Dispenser) error {
	place := *d
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return place.Err("respond takes a status and, if need be, a body in quotes, as in: respond 200 ok" + caddyconf.Unset)
	}
	status, err := strconv.Atoi(args[0])
	if err != nil || status == 0 {
		return place.Errf("respond takes a status from 200 to 299, not '%s'", args[0])
	}
	h.RespondStatus = status
	if len(args) == 2 {
		h.RespondBody = shorthand.Undo(args[1])
	}
	return nil
}
