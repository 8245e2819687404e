package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/api"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli/flags"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/text"
)

// questions are those that wait for a person.
var questions = resource[api.Question]{
	name: "questions", many: "questions",
	none:    "Nobody has to answer anything. Runs that wait for their agents: caddy hooks runs --status waiting",
	columns: []string{"ASKED", "HOOK", "CLOSES", "ANSWERS", "QUESTION", "TEXT"},
	cells: func(c terminal.Clock, q *api.Question) [][]terminal.Text {
		closes := ""
		if q.Until != nil {
			closes = "in " + terminal.Roughly(max(0, q.Until.Sub(c.Now)))
		}
		return terminal.Line(c.When(q.AskedAt), q.Hook, closes, terminal.ShortText(possibleAnswers(q), maxChatCell), q.ID,
			terminal.Faint(terminal.ShortText(onOneLine(q.Text), maxReasonCell)))
	},
	word: func(q *api.Question) (string, string) { return q.ID, q.Hook + " " + onOneLine(q.Text) },
}

// onOneLine is a text of several lines in a row of a table.
func onOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func possibleAnswers(q *api.Question) string {
	if len(q.Choices) == 0 {
		return "any text"
	}
	return strings.Join(q.Choices, ", ")
}

func questionsVerb() *cobra.Command {
	return questions.verb(&cobra.Command{
		Use:   "questions [--limit N]",
		Short: "Lists the questions that somebody has to answer",
		Long: `
Lists the open questions for people, the newest first: their runs wait until somebody answers. CLOSES is when the question is answered by
itself, as it was configured.`,
		Example: `  caddy hooks questions
  caddy hooks answer 019a86f2-4c1e yes`,
	})
}

func answerVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "answer {QUESTION-ID | RUN-ID} ANSWER",
		Short: "Answers a question, so that its run goes on",
		Long: `
Answers a question that a run waits for. The id of the run stands for its open question. Of an id its beginning is enough, as in
caddy hooks show. A question is answered once: if somebody else was first, this says who and what, and exits with 1.

  caddy hooks answer q_019a86f24c1e7b029d551f0c6c0e7a31_0 yes
  caddy hooks answer 019a86f2-4c1e "The second one, please"`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("what to answer is missing: the id of a question or of a run")
			case len(args) == 1:
				return errors.New("the answer is missing")
			case len(args) > 2:
				return fmt.Errorf("%q is one argument too many (a text with blanks stands in quotes)", text.Abridge(args[2]))
			}
			return nil
		},
		RunE:              withSession(runAnswer),
		ValidArgsFunction: completeAnswer,
	}
}

// completeAnswer offers open questions, and then what can be answered.
func completeAnswer(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return flags.CompleteOne(questions.complete())(cmd, args, typed)
	}
	return complete(func(s *session) (words []cobra.Completion, err error) {
		id, err := s.questionIDOf(args[0])
		if err != nil {
			return nil, err
		}
		var q api.Question
		_, err = s.get("questions/"+url.PathEscape(id), nil, &q)
		return append(words, q.Choices...), err
	})(cmd, args, typed)
}

func runAnswer(s *session, cmd *cobra.Command, args []string) error {
	id, err := s.questionIDOf(args[0])
	if err != nil {
		return err
	}
	var q api.Question
	answer, err := s.call(adminclient.Call{Method: http.MethodPost, Path: "questions/" + url.PathEscape(id),
		Body: text.PlainJSON(map[string]string{"answer": args[1]})}, &q)
	if adminclient.IsRefused(err, http.StatusBadRequest) {
		return flags.WrongUsage(err)
	}
	if done, err := s.printedJSON(answer, err); done {
		return err
	}
	s.screen.Line(terminal.Good("answered"), terminal.Plain("  "+q.Answer.String()+"  run "), terminal.Bold(q.RunID),
		terminal.Faint("        "+flags.NextCommand(cmd, "show", q.RunID)))
	return nil
}

// questionPrefix is how ids of questions begin.
const questionPrefix = "q_"

// questionIDOf is the id of a question that an argument names: by its id or the beginning of it, or by that of its run. What is no id is
// for Caddy to refuse.
func (s *session) questionIDOf(arg string) (string, error) {
	if _, _, ok := engine.ParseQuestionID(arg); ok {
		return arg, nil
	}
	beginning, runID := "", arg
	if digits, ok := strings.CutPrefix(arg, questionPrefix); ok {
		beginning, runID = arg, dashed(digits)
	}
	runID, err := s.runIDOf(runID)
	if err != nil {
		return "", err
	}
	var run api.RunDetails
	if _, err := s.get("runs/"+url.PathEscape(runID), nil, &run); err != nil {
		return "", err
	}
	var open []string
	var last *api.Question
	for i := range run.Questions {
		q := &run.Questions[i]
		switch {
		case !q.Kind.ForPeople() || !strings.HasPrefix(q.ID, beginning):
		case q.Answer == nil:
			open = append(open, q.ID)
		default:
			last = q
		}
	}
	switch {
	case len(open) > 1:
		return "", fmt.Errorf("the run %s has several open questions: %s", runID, text.List(open))
	case len(open) == 1:
		return open[0], nil
	case last != nil:
		return "", fmt.Errorf("the question of the run %s was answered already: %s", runID, last.Answer)
	default:
		return "", fmt.Errorf("the run %s has no question for people: caddy hooks questions lists those that are open", runID)
	}
}

// showQuestions shows what a run was asked, and the answers.
func (p printer) showQuestions(asked []api.Question, clock terminal.Clock) {
	for i := range asked {
		q := &asked[i]
		p.Line()
		state := terminal.Warn("open")
		if q.Answer != nil {
			state = terminal.Plain(q.Answer.String() + ", " + clock.When(q.Answer.At))
		}
		p.Line(terminal.Bold("Question "+q.ID), terminal.Plain("  "+string(q.Kind)+"  "), state)
		if q.Kind.ForPeople() && q.Answer == nil {
			p.Line(terminal.Faint("  answers: "), terminal.Plain(possibleAnswers(q)))
		}
		if q.Channel != "" {
			p.Line(terminal.Faint("  asked in: "), terminal.Plain(strings.TrimSpace(q.Channel+" "+q.To)))
		}
		if q.Until != nil && q.Answer == nil {
			p.Line(terminal.Faint("  closes: "), terminal.Plain(strings.TrimSpace(clock.When(q.Until)+" "+elseWords(q))))
		}
		if q.Text != "" {
			p.Lines(terminal.Plain("  "), q.Text)
		}
	}
}

func elseWords(q *api.Question) string {
	if q.Else == "" {
		return ""
	}
	return "with " + q.Else
}
