package codec

import (
	"encoding/json"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
)

// questionJSON is a question without what columns have: RunID, Number, State, AskedAt and Answer.
type questionJSON struct {
	Kind    string        `json:"kind,omitempty"`
	Text    string        `json:"text,omitempty"`
	Choices []string      `json:"choices,omitempty"`
	Channel string        `json:"channel,omitempty"`
	To      string        `json:"to,omitempty"`
	By      []string      `json:"by,omitempty"`
	For     time.Duration `json:"for,omitempty"`
	Else    string        `json:"else,omitempty"`
}

type answerJSON struct {
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
	By    string `json:"by,omitempty"`
	Via   string `json:"via,omitempty"`
	Usage string `json:"usage,omitempty"`
}

// EncodeQuestion writes down what is asked.
func EncodeQuestion(q *engine.Question) (string, error) {
	data, err := json.Marshal(&questionJSON{string(q.Kind), Escape(q.Text), EscapeAll(q.Choices), Escape(q.Channel), Escape(q.To),
		EscapeAll(q.By), q.For, Escape(q.Else)})
	return string(data), err
}

// EncodeAnswer writes down an answer but for its time.
func EncodeAnswer(a *engine.Answer) (string, error) {
	data, err := json.Marshal(&answerJSON{Escape(a.Text), Escape(a.Error), Escape(a.By), Escape(a.Via), Escape(string(a.Usage))})
	return string(data), err
}

// DecodeQuestion fills in what EncodeQuestion and EncodeAnswer wrote. The times are nil if it was not asked or not answered.
func DecodeQuestion(q *engine.Question, record, answer []byte, askedAt, answeredAt *time.Time) error {
	var asked questionJSON
	if err := json.Unmarshal(record, &asked); err != nil {
		return err
	}
	q.Kind, q.Text, q.Choices = engine.QuestionKind(asked.Kind), Unescape(asked.Text), UnescapeAll(asked.Choices)
	q.Channel, q.To, q.By = Unescape(asked.Channel), Unescape(asked.To), UnescapeAll(asked.By)
	q.For, q.Else = asked.For, Unescape(asked.Else)
	if askedAt != nil {
		q.AskedAt = askedAt.UTC()
		if q.For > 0 {
			q.Until = q.AskedAt.Add(q.For)
		}
	}
	if answeredAt == nil {
		return nil
	}
	var given answerJSON
	if err := json.Unmarshal(answer, &given); err != nil {
		return err
	}
	q.Answer = &engine.Answer{Text: Unescape(given.Text), Error: Unescape(given.Error), By: Unescape(given.By), Via: Unescape(given.Via),
		At: answeredAt.UTC()}
	if given.Usage != "" {
		q.Answer.Usage = []byte(Unescape(given.Usage))
	}
	return nil
}

// DecodeQuestions reads the questions of a run, as the function run_questions_1 gives them out.
func DecodeQuestions(data []byte, run string) (all []*engine.Question, err error) {
	var rows []struct {
		Number              int
		AskedAt, AnsweredAt *int64 // in microseconds
		Record, Answer      json.RawMessage
		State               []byte
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, err
	}
	for _, r := range rows {
		q := &engine.Question{RunID: run, Number: r.Number, State: r.State}
		if err := DecodeQuestion(q, r.Record, r.Answer, microTime(r.AskedAt), microTime(r.AnsweredAt)); err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

func microTime(micros *int64) *time.Time {
	if micros == nil {
		return nil
	}
	at := time.UnixMicro(*micros)
	return &at
}
