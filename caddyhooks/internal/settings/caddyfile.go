package settings

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/template"
)

// HookBlock is a mapping with the places of its settings.
type HookBlock struct {
	Mapping
	metadata map[string]string
	Places   SettingPlaces
}

// UnmarshalHook parses:
//
//	hook <name> {
//		action               wake|agent
//		auth                 <scheme> [<arg>...]
//		template             <text>
//		template_file        <path>
//		chat_id              <text>
//		model                <tier>
//		memory_preset        <id>
//		sync
//		response_schema      <json>
//		response_schema_file <path>
//		validation_tier      <tier>
//		callback_url         <url>
//		deliver              <channel> <to>
//		ask                  [first <template>] <channel> <to> before run|deliver [<duration>] [by <id>...] [else drop|run|send|hold]
//		progress             <text>
//		timeout              <duration>
//		queue_time           <duration>
//		metadata             <key> <value>
//		idempotency_header   <name>
//		runner               <name>
//		untrusted            pass|wrap
//		history              <duration>|off
//		from                 <cidr>...
//		body                 json|form|auto|cloudevents
//		only                 <condition>
//		skip                 <condition>
//		each                 <jsonpath>
//		fold                 <window> [<max>] [latest]
//		once                 <template> [<duration>]
//		overlap              queue|skip|replace
//		rate                 <n>/<duration> [by <template>]
//		budget               $<amount>/<duration>|<n> tokens/<duration> [by <template>] [else hold|refuse|ignore]
//		respond              <status> [<body>]
//		workers              <n>
//		max_payload          <size>
//	}
func UnmarshalHook(d *caddyfile.Dispenser) (*HookBlock, error) {
	h := &HookBlock{Places: make(SettingPlaces), metadata: make(map[string]string)}
	h.Places["name"] = *d
	var err error
	if h.Name, err = caddyconf.Text(d); err != nil {
		return nil, err
	}
	var directives []caddyconf.Directive
	for _, directive := range h.Directives() {
		directives = append(directives, h.Places.Note(directive.Directive, directive.fields...))
	}
	err = caddyconf.ReadBlock(d, "a hook", directives...)
	if err == nil && len(h.metadata) > 0 {
		h.Metadata, err = json.Marshal(h.metadata)
	}
	return h, err
}

// hookDirective is a directive of a hook with the fields of a mapping that it sets, by their names in JSON.
type hookDirective struct {
	caddyconf.Directive
	fields []string
}

// Directives are those of a hook.
func (h *HookBlock) Directives() []hookDirective {
	templateFile := caddyconf.Set("template_file", &h.MessageTemplate, readTemplateFile)
	templateFile.InsteadOf = "template"
	schemaFile := caddyconf.Set("response_schema_file", &h.ResponseJSONSchema, schemaFrom(caddyconf.File))
	schemaFile.InsteadOf = "response_schema"
	field := func(jsonName string) []string { return []string{jsonName} }
	return append([]hookDirective{
		{caddyconf.Set("action", (*string)(&h.Action), caddyconf.Word), field("action")},
		{caddyconf.Directive{Word: "auth", Read: func(d *caddyfile.Dispenser) error { return h.unmarshalAuth(d, h.Places) }}, authFields()},
		{caddyconf.Set("template", &h.MessageTemplate, caddyconf.Prose(caddyconf.Template)), field("messageTemplate")},
		{templateFile, field("messageTemplate")},
		{caddyconf.Set("chat_id", &h.ChatID, caddyconf.Template), field("chatId")},
		{caddyconf.Set("model", &h.Model, caddyconf.Word), field("model")},
		{caddyconf.Set("memory_preset", &h.MemoryPreset, caddyconf.Word), field("memoryPreset")},
		{caddyconf.Set("sync", &h.SyncResponse, caddyconf.Present), field("syncResponse")},
		{caddyconf.Set("response_schema", &h.ResponseJSONSchema, schemaFrom(caddyconf.Text)), field("responseJsonSchema")},
		{schemaFile, field("responseJsonSchema")},
		{caddyconf.Set("validation_tier", &h.ResponseValidationModelTier, caddyconf.Word), field("responseValidationModelTier")},
		{caddyconf.Set("callback_url", &h.CallbackURL, caddyconf.Word), field("callbackUrl")},
		{caddyconf.Directive{Word: "deliver", Read: h.unmarshalDeliver}, []string{"deliver", "channel", "to"}},
		{caddyconf.Directive{Word: "ask", Repeatable: true, Read: h.unmarshalAsk}, field("ask")},
		{caddyconf.Set("progress", &h.Progress, caddyconf.Prose(caddyconf.Text)), field("progress")},
		{caddyconf.Set("timeout", &h.TimeoutSeconds, caddyconf.Seconds), field("timeoutSeconds")},
		{caddyconf.Set("queue_time", &h.QueueTimeSeconds, caddyconf.Seconds), field("queueTimeSeconds")},
		{caddyconf.Directive{Word: "metadata", Repeatable: true, Read: h.unmarshalMetadata}, field("metadata")},
		{caddyconf.Set("idempotency_header", &h.IdempotencyHeader, caddyconf.Word), field("idempotencyHeader")},
		{caddyconf.Set("runner", &h.Runner, readRunnerName), field("runner")},
		{caddyconf.Set("untrusted", &h.Untrusted, caddyconf.Word), field("untrusted")},
		{caddyconf.Set("history", &h.HistorySeconds, caddyconf.Pointer(readHistory)), field("historySeconds")},
	}, h.senderDirectives()...)
}

// readTemplateFile reads a file without the line break at its end.
func readTemplateFile(d *caddyfile.Dispenser) (string, error) {
	text, err := caddyconf.File(d)
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), err
}

// schemaFrom returns a reader of schemas, whose text read gets.
func schemaFrom(read caddyconf.Reader[string]) caddyconf.Reader[json.RawMessage] {
	return func(d *caddyfile.Dispenser) (json.RawMessage, error) {
		start := *d // the text may have many lines
		text, err := read(d)
		schema := json.RawMessage(text)
		switch {
		case err != nil:
		case !json.Valid(schema):
			err = start.Errf("%s is not valid JSON", start.Val())
		case !IsJSONObject(schema):
			err = start.Errf("%s is refused: the schema must be a JSON object", start.Val())
		}
		return schema, err
	}
}

func (h *HookBlock) unmarshalDeliver(d *caddyfile.Dispenser) error {
	args, err := caddyconf.List(d)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		return d.Err(`deliver takes the name of a channel and a chat on it; a # begins a comment, so write "#general" in quotes` +
			caddyconf.Unset)
	}
	if len(args) != 2 {
		return d.Err("deliver takes the name of a channel and a chat on it" + caddyconf.Unset)
	}
	h.Deliver, h.Channel, h.To = true, args[0], args[1]
	return nil
}

func (h *HookBlock) unmarshalMetadata(d *caddyfile.Dispenser) error {
	var key, value string // which may be empty
	if !d.AllArgs(&key, &value) {
		return d.Err("metadata takes a key and a value" + caddyconf.Unset)
	}
	if key == "" {
		return d.Err("the key of metadata is empty" + caddyconf.Unset)
	}
	if _, ok := h.metadata[key]; ok {
		return d.Errf("metadata %s is set already", key)
	}
	h.metadata[key] = shorthand.Undo(value)
	return nil
}

// SettingPlaces are the places in a Caddyfile that set something, by its name in JSON. Errors that are found when the whole
// block is known are reported there.
type SettingPlaces map[string]caddyfile.Dispenser

// Note returns the directive, which then notes its place as that of the named settings.
func (p SettingPlaces) Note(directive caddyconf.Directive, settings ...string) caddyconf.Directive {
	read := directive.Read
	directive.Read = func(d *caddyfile.Dispenser) error {
		for _, name := range settings {
			p[name] = *d
		}
		return read(d)
	}
	return directive
}

// ErrAt reports an error at the place of the setting that it is about.
func (p SettingPlaces) ErrAt(d *caddyfile.Dispenser, err error) error {
	var field *FieldError
	if errors.As(err, &field) {
		if place, ok := p[field.Field]; ok {
			return place.Errf("%s %s", place.Val(), field.Problem)
		}
		return d.Err(bothNames(field.Field) + " " + field.Problem)
	}
	return d.WrapErr(err)
}

// senderDirectives are those directives of a hook that say what of a sender's requests counts, and how many.
func (h *HookBlock) senderDirectives() []hookDirective {
	return []hookDirective{
		{caddyconf.Set("from", &h.From, caddyconf.List), []string{"from"}},
		{caddyconf.Set("body", &h.Body, caddyconf.Word), []string{"body"}},
		{readConditions("only", &h.Only), []string{"only"}},
		{readConditions("skip", &h.Skip), []string{"skip"}},
		{caddyconf.Set("each", &h.Each, caddyconf.Template), []string{"each"}},
		{caddyconf.Directive{Word: "fold", Read: h.unmarshalFold}, []string{"foldSeconds", "foldMax", "foldLatest"}},
		{caddyconf.Directive{Word: "once", Read: h.unmarshalOnce}, []string{"once", "onceSeconds"}},
		{caddyconf.Set("overlap", &h.Overlap, caddyconf.Word), []string{"overlap"}},
		{caddyconf.Directive{Word: "rate", Repeatable: true, Read: h.unmarshalRate}, []string{"rate", "rateBy", "rateByLimit"}},
		{caddyconf.Directive{Word: "budget", Repeatable: true, Read: h.unmarshalBudget}, []string{"budgets"}},
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
		return quotedWords(args)
	}
	return strings.Join(args, " ")
}

// quotedWords writes words as one line. Those with spaces stand in quotes.
func quotedWords(words []string) string {
	quoted := slices.Clone(words)
	for i, word := range words {
		if word == "" || word[0] == '"' || strings.ContainsAny(word, " \t\r\n") {
			quoted[i] = strconv.Quote(word)
		}
	}
	return strings.Join(quoted, " ")
}

func (h *HookBlock) unmarshalFold(d *caddyfile.Dispenser) error {
	fold, err := readFold(d)
	h.FoldSeconds, h.FoldMax, h.FoldLatest = fold.Seconds, fold.Max, fold.Latest
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
