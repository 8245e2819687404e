package settings

import (
	"encoding/json"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/shorthand"
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
//		auth                 <scheme> [<args...>]
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
//		timeout              <duration>
//		queue_time           <duration>
//		metadata             <key> <value>
//		idempotency_header   <name>
//		runner               <name>
//		untrusted            pass|wrap
//		history              <duration>|off
//		from                 <cidr...>
//		body                 json|form|auto
//		only                 <condition>
//		skip                 <condition>
//		each                 <jsonpath>
//		fold                 <window> [<max>]
//		rate                 <n>/<duration>
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
		return d.Err(`deliver takes the name of a channel and a chat on it; a # begins a comment, so write "#general" in quotes` + caddyconf.Unset)
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
