package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/strictjson"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/httpcall"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// completion collects an answer, which comes in one document or in many.
type completion struct {
	text     strings.Builder
	refusal  strings.Builder
	finish   string // the finish reason
	chosen   bool   // whether there was a choice
	tools    bool   // whether the model wants to call one
	reasoned bool   // whether there was text of a kind that is dropped
	half     rune   // the first half of a character that the last text ended with, 0 if there is none
	nextHalf rune   // the same for the document that is being read
	emit     func(engine.Progress)
	used     usage.Report
}

// readCompletion reads a body, in one piece or as a stream of events, whatever its Content-Type is. finished is called when a
// stream has a finish reason. emit may be nil. What was used is returned also with an error.
func readCompletion(body io.Reader, finished func(), emit func(engine.Progress)) (text string, used usage.Report, err error) {
	r := bufio.NewReader(body)
	c := &completion{emit: emit}
	whole, err := startsWhole(r)
	switch {
	case err != nil:
	case whole:
		err = c.readWhole(r)
	default:
		err = c.readEvents(r, finished)
	}
	if err == nil {
		text, err = c.result()
	}
	return text, c.used, err
}

// startsWhole reports whether a body starts as a JSON document. Servers answer a request for a stream with one, and vice versa.
func startsWhole(r *bufio.Reader) (bool, error) {
	for n := 1; n <= r.Size(); n++ {
		start, err := r.Peek(n)
		if len(start) < n {
			if errors.Is(err, io.EOF) {
				return false, errors.New("it is empty")
			}
			return false, err
		}
		switch start[n-1] {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // the last three are a byte order mark
		case '{', '[', '"', '<':
			return true, nil
		default:
			return false, nil
		}
	}
	return false, nil
}

// maxDocument bounds a document: escapes make it longer than its text, and there may be reasoning in it.
const maxDocument = 16 * answers.MaxReply

func (c *completion) readWhole(r io.Reader) error {
	data, err := httpcall.ReadBounded(r, -1, maxDocument)
	if err != nil {
		return err
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	document, err := c.parse(data)
	if err != nil {
		e := &answers.Error{Problem: "it is not a JSON object: " + err.Error(), Text: answers.Beginning(data)}
		if data = bytes.TrimSpace(data); len(data) > 0 && data[0] != '{' {
			e.Hint = hintURL
		}
		return e
	}
	if err := c.add(document); err != nil {
		return err
	}
	if !c.chosen {
		return &answers.Error{Problem: "it has no choices", Text: answers.Beginning(data)}
	}
	return nil
}

// documentFields are the members of a document that matter. The others are checked, and take no memory.
var documentFields = func() *strictjson.Selection {
	fields := strictjson.Members("object", "message", "detail", "code")
	fields.Member("error").SelectAll()
	choice := fields.Member("choices").Item(7)
	choice.Member("index")
	choice.Member("finish_reason")
	for _, name := range []string{"delta", "message"} {
		message := choice.Member(name)
		message.Member("content").SelectAll()
		message.Member("refusal")
		message.Member("tool_calls").Item(0)
		message.Member("function_call")
		for _, reasoning := range reasoningFields {
			message.Member(reasoning)
		}
	}
	chatUsage.selectFrom(fields)
	return fields
}()

// reasoningFields hold what a model thinks before it answers. That is not for callers.
var reasoningFields = []string{"reasoning", "reasoning_content", "thinking"}

func parseDocument(data []byte) (map[string]any, error) {
	value, err := strictjson.ParseSelected(data, documentFields)
	if err != nil {
		return nil, err
	}
	document, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("it is another value")
	}
	return document, nil
}

// parse parses a document. Half a character, which is no JSON, is put together with the other half in the next document:
// servers in JavaScript cut texts in the middle of an emoji.
func (c *completion) parse(data []byte) (map[string]any, error) {
	c.nextHalf = 0
	document, err := parseDocument(data)
	if err == nil {
		return document, nil
	}
	joined, used, rest := joinHalves(data, c.half)
	if joined == nil {
		return nil, err
	}
	if document, err = parseDocument(joined); err != nil {
		return nil, err
	}
	if used {
		c.half = 0
	}
	c.nextHalf = rest
	return document, nil
}

// joinHalves replaces halves of characters in a document: one at the beginning of a text by the character, if half is the
// half before it, and others by the replacement character. One at the end of a text is left out, and returned as rest. The
// result is nil if there is no such half.
func joinHalves(data []byte, half rune) (joined []byte, used bool, rest rune) {
	const length = len(`\uD83D`)
	start := 0 // of what is not copied yet
	for i := 0; i+1 < len(data); {
		if data[i] != '\\' {
			i++
			continue
		}
		first := surrogate(data[i:])
		if first == 0 {
			i += 2
			continue
		}
		end := i + length
		if second := surrogate(data[end:]); utf16.DecodeRune(first, second) != utf8.RuneError {
			i = end + length
			continue
		}
		joined = append(joined, data[start:i]...)
		whole := utf16.DecodeRune(half, first)
		switch {
		case half != 0 && !used && i > 0 && data[i-1] == '"' && whole != utf8.RuneError:
			joined, used = utf8.AppendRune(joined, whole), true
		case utf16.DecodeRune(first, 0xDC00) != utf8.RuneError && end < len(data) && data[end] == '"':
			rest = first
		default:
			joined = utf8.AppendRune(joined, utf8.RuneError)
		}
		i, start = end, end
	}
	if start == 0 {
		return nil, false, 0
	}
	return append(joined, data[start:]...), used, rest
}

// surrogate is the half of a character that an escape at the beginning of data stands for, 0 if there is none.
func surrogate(data []byte) rune {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil || !utf16.IsSurrogate(rune(code)) {
		return 0
	}
	return rune(code)
}

// add takes the text out of a document that parse returned: a whole answer or a piece of one.
func (c *completion) add(document map[string]any) error {
	chatUsage.read(document, &c.used)
	if err := documentError(document); err != nil {
		return c.reported(err)
	}
	defer func() {
		if c.nextHalf != 0 {
			c.half = c.nextHalf
		}
	}()
	choices, _ := document["choices"].([]any)
	for _, value := range choices {
		choice, ok := value.(map[string]any)
		if !ok {
			continue
		}
		if index, ok := choice["index"].(json.Number); ok && index != "0" { // another answer to the same question
			continue
		}
		return c.addChoice(choice)
	}
	return nil
}

// reported is an error that a document reports. After text its status does not matter.
func (c *completion) reported(err *answers.Error) error {
	if c.text.Len() > 0 {
		err.Status = 0
	}
	return err
}

// documentError is the error that a document tells of, nil if there is none.
func documentError(document map[string]any) *answers.Error {
	switch problem := document["error"].(type) {
	case nil, bool:
		if document["object"] == "error" { // as older versions of vLLM have it
			text, _ := document["message"].(string)
			return reportedError(text, "", statusMember(document["code"]))
		}
		return nil
	case string:
		if problem == "" {
			return nil
		}
		return reportedError(problem, "", 0)
	default:
		raw, _ := turns.EncodeJSON(problem)
		fields, _ := problem.(map[string]any)
		return reportedError(errorMessage(problem), string(raw), statusMember(fields["code"]))
	}
}

// reportedError is an error that the server reports in an answer.
func reportedError(message, raw string, status int) *answers.Error {
	return &answers.Error{Problem: "the runner sent an error", Text: errorText(message, raw), Status: status}
}

// errorText is a message, and after it all there is, for operators.
func errorText(message, raw string) string {
	switch {
	case message == "" || raw == "":
		message += raw
	case strings.TrimSpace(message) != strings.TrimSpace(raw):
		message += "\n" + raw
	}
	return answers.Beginning(message)
}

// errorMessage is the message in the error member of a document.
func errorMessage(problem any) string {
	switch problem := problem.(type) {
	case string:
		return problem
	case map[string]any:
		for _, name := range []string{"message", "detail", "error"} {
			if message, ok := problem[name].(string); ok && strings.TrimSpace(message) != "" {
				return message
			}
		}
	}
	return ""
}

func (c *completion) addChoice(choice map[string]any) error {
	c.chosen = true
	message, ok := choice["delta"].(map[string]any)
	if whole, isWhole := choice["message"].(map[string]any); isWhole && (!ok || len(message) == 0) {
		message = whole
	}
	if refusal, ok := message["refusal"].(string); ok {
		c.refusal.WriteString(refusal)
	}
	if calls, ok := message["tool_calls"].([]any); ok && len(calls) > 0 {
		c.tools = true
	}
	if _, ok := message["function_call"].(map[string]any); ok {
		c.tools = true
	}
	for _, name := range reasoningFields {
		if text, ok := message[name].(string); ok && text != "" {
			c.reasoned = true
		}
	}
	if err := c.addContent(message["content"]); err != nil {
		return err
	}
	if finish, ok := choice["finish_reason"].(string); ok && finish != "" {
		c.finish = strings.ToLower(finish)
	}
	if c.text.Len()+c.refusal.Len() > answers.MaxReply {
		return answers.ErrTooLarge
	}
	return nil
}

// addContent adds a text, or the texts among parts.
func (c *completion) addContent(content any) error {
	switch content := content.(type) {
	case nil:
	case string:
		c.addText(content)
	case []any:
		for _, part := range content {
			c.addPart(part)
		}
	default:
		return errors.New("its content is neither a text nor a list of parts")
	}
	return nil
}

func (c *completion) addPart(part any) {
	switch part := part.(type) {
	case string:
		c.addText(part)
	case map[string]any:
		switch text, _ := part["text"].(string); part["type"] {
		case "text", "output_text", nil:
			c.addText(text)
		case "refusal":
			refusal, _ := part["refusal"].(string)
			c.refusal.WriteString(refusal)
		default:
			c.reasoned = true
		}
	}
}

func (c *completion) addText(text string) {
	if text == "" {
		return
	}
	if c.half != 0 { // without the other half
		text, c.half = string(utf8.RuneError)+text, 0
	}
	c.text.WriteString(text)
	if c.emit != nil && c.text.Len() <= answers.MaxReply {
		c.emit(engine.Progress{Text: text})
	}
}

// result is the text of the answer, if it is one.
func (c *completion) result() (string, error) {
	if c.half != 0 {
		c.half = 0
		c.addText(string(utf8.RuneError))
	}
	text := c.text.String()
	blank := strings.TrimSpace(text) == ""
	switch {
	case !c.chosen:
		return "", errors.New("it has no choices")
	case strings.TrimSpace(c.refusal.String()) != "":
		return "", &answers.Error{Problem: "the model refused", Text: c.refusal.String()}
	}
	switch c.finish {
	case "length", "max_tokens":
		problem := "it was cut off at the largest number of tokens (finish_reason " + c.finish + ")"
		return "", &answers.Error{Problem: problem, Hint: "max_tokens in body can allow for more"}
	case "content_filter":
		return "", errors.New("a content filter stopped it (finish_reason content_filter)")
	case "error", "abort", "cancelled", "canceled":
		return "", fmt.Errorf("the server broke it off (finish_reason %s)", c.finish)
	}
	switch {
	case c.tools: // text beside them says what the model is about to do
		return "", &answers.Error{Problem: "the model wants to call tools, and this runner has none", Text: text}
	case blank && c.reasoned:
		return "", &answers.Error{Problem: "it has reasoning and no text", Hint: "max_tokens in body can allow for more"}
	case blank:
		return "", errors.New("it has no text")
	}
	return text, nil
}

const hintURL = "url must end before /chat/completions, as in http://127.0.0.1:11434/v1"

// refusedAnswer is an answer with a status other than 200.
func refusedAnswer(resp *http.Response, key bool) *answers.Error {
	form := httpcall.MediaType(resp.Header.Get("Content-Type"))
	e := &answers.Error{Problem: fmt.Sprintf("the runner answered %d", resp.StatusCode), Hint: httpcall.StatusHint(resp.StatusCode)}
	if httpcall.IsPage(form) {
		e.Problem += " with " + form
	}
	e.Text = httpcall.Beginning(resp)
	document, err := strictjson.Parse([]byte(e.Text))
	if fields, ok := document.(map[string]any); err == nil && ok {
		message := errorMessage(fields["error"])
		if message == "" {
			message = errorMessage(fields)
		}
		e.Text = errorText(message, e.Text)
	}
	switch status := resp.StatusCode; {
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && key:
		e.Hint = "check the line key: the server does not accept it"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.Hint = "key is not set"
	case (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && err != nil:
		e.Hint = hintURL
	}
	return e
}

// statusMember is a status in a member of an error, 0 if there is none.
func statusMember(value any) int {
	text, ok := value.(string)
	if number, isNumber := value.(json.Number); isNumber {
		text, ok = number.String(), true
	}
	status, err := strconv.Atoi(text)
	if !ok || err != nil || status < http.StatusBadRequest || status > 599 {
		return 0
	}
	return status
}
