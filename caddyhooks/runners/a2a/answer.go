package a2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/answers"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/runners/internal/turns"
)

// turnAnswer collects what an agent says in a turn: a message, or a task with its states and artifacts.
type turnAnswer struct {
	schema bool                  // whether JSON is asked for
	emit   func(engine.Progress) // may be nil

	task         a2a.TaskID
	context      string
	state        a2a.TaskState // of the task, "" while there is none
	stateMessage partContent   // the message of that state
	mark         string        // see statusMark
	unknown      string        // a state that is none of A2A 1.0
	heard        bool          // whether there was any event

	message   *partContent
	artifacts []*partContent
	size      int // of the artifacts
	said      strings.Builder
	diverged  bool // what was emitted is not how the answer begins

	used usage.Reports // as the last metadata that has it says
}

// partContent is what is in the parts of a message or an artifact.
type partContent struct {
	id    a2a.ArtifactID
	text  strings.Builder
	data  []string // JSON
	files int
}

func (c *partContent) size() int {
	size := c.text.Len()
	for _, data := range c.data {
		size += len(data)
	}
	return size
}

// add takes parts in. between stands between texts.
func (c *partContent) add(parts a2a.ContentParts, between string) error {
	for _, part := range parts {
		if part == nil {
			continue
		}
		switch content := part.Content.(type) {
		case a2a.Text:
			if c.text.Len() > 0 && content != "" {
				c.text.WriteString(between)
			}
			c.text.WriteString(string(content))
		case a2a.Data:
			data, err := turns.EncodeJSON(content.Value)
			if err != nil {
				return err
			}
			c.data = append(c.data, string(data))
		default:
			c.files++
		}
	}
	if c.size() > answers.MaxReply {
		return answers.ErrTooLarge
	}
	return nil
}

// add takes an event in.
func (a *turnAnswer) add(event a2a.Event) (err error) {
	a.heard = true
	switch event := event.(type) {
	case *a2a.Message:
		a.named(event.TaskInfo())
		a.note(event.Metadata)
		a.message = new(partContent)
		err = a.message.add(event.Parts, "\n")
	case *a2a.Task:
		a.named(event.TaskInfo())
		a.note(event.Metadata)
		if err = a.replaceAll(event.Artifacts); err == nil {
			err = a.became(event.Status)
		}
	case *a2a.TaskStatusUpdateEvent:
		a.named(event.TaskInfo())
		a.note(event.Metadata)
		err = a.became(event.Status)
	case *a2a.TaskArtifactUpdateEvent:
		a.named(event.TaskInfo())
		if event.Artifact != nil {
			err = a.update(event.Artifact, event.Append)
		}
	default:
		err = errors.New("an event of an unknown kind")
	}
	return err
}

// named keeps the names of the task and its context.
func (a *turnAnswer) named(info a2a.TaskInfo) {
	if info.TaskID != "" {
		a.task = info.TaskID
	}
	if info.ContextID != "" {
		a.context = info.ContextID
	}
}

// note notes what was used, if metadata says so. Each time it is that of the whole task.
func (a *turnAnswer) note(metadata map[string]any) {
	var used usage.Reports
	if data, err := json.Marshal(metadata["usage"]); err == nil && used.UnmarshalJSON(data) == nil && used != nil {
		a.used = used
	}
}

// became takes in what state the task is in. The message of a state before is no longer of interest.
func (a *turnAnswer) became(status a2a.TaskStatus) error {
	a.state, a.stateMessage, a.unknown, a.mark = status.State, partContent{}, "", statusMark(status)
	if !slices.Contains(taskStates, status.State) {
		a.unknown = status.State.String()
	}
	if status.Message == nil {
		return nil
	}
	a.note(status.Message.Metadata)
	return a.stateMessage.add(status.Message.Parts, "\n")
}

var taskStates = []a2a.TaskState{
	a2a.TaskStateSubmitted, a2a.TaskStateWorking, a2a.TaskStateInputRequired, a2a.TaskStateAuthRequired,
	a2a.TaskStateCompleted, a2a.TaskStateCanceled, a2a.TaskStateFailed, a2a.TaskStateRejected,
}

// replaceAll takes in the artifacts of a task as it is now.
func (a *turnAnswer) replaceAll(artifacts []*a2a.Artifact) error {
	a.artifacts, a.size = nil, 0
	for _, artifact := range artifacts {
		if artifact == nil {
			continue
		}
		content := &partContent{id: artifact.ID}
		if err := content.add(artifact.Parts, ""); err != nil {
			return err
		}
		a.artifacts = append(a.artifacts, content)
		if a.size += content.size(); a.size > answers.MaxReply {
			return answers.ErrTooLarge
		}
	}
	text := a.artifactText()
	if rest, ok := strings.CutPrefix(text, a.said.String()); ok {
		a.say(rest)
	} else {
		a.diverged = true
	}
	return nil
}

// update takes in an artifact, or more of one.
func (a *turnAnswer) update(artifact *a2a.Artifact, more bool) error {
	at := slices.IndexFunc(a.artifacts, func(c *partContent) bool { return c.id == artifact.ID })
	if at < 0 {
		if len(a.artifacts) == maxArtifacts {
			return fmt.Errorf("the answer has more than %d artifacts", maxArtifacts)
		}
		at = len(a.artifacts)
		a.artifacts = append(a.artifacts, &partContent{id: artifact.ID})
	}
	content := a.artifacts[at]
	before := content.text.String()
	if !more {
		a.size -= content.size()
		content = &partContent{id: artifact.ID}
		a.artifacts[at] = content
	} else {
		a.size -= content.size()
	}
	if err := content.add(artifact.Parts, ""); err != nil {
		return err
	}
	if a.size += content.size(); a.size > answers.MaxReply {
		return answers.ErrTooLarge
	}
	added, ok := strings.CutPrefix(content.text.String(), before)
	switch last := !slices.ContainsFunc(a.artifacts[at+1:], func(c *partContent) bool { return c.text.Len() > 0 }); {
	case !ok || !last && added != "":
		a.diverged = true
	case before == "" && a.said.Len() > 0 && added != "":
		a.say(betweenArtifacts + added)
	default:
		a.say(added)
	}
	return nil
}

const (
	// maxArtifacts bounds how many artifacts an answer has.
	maxArtifacts = 1000

	betweenArtifacts = "\n\n"
)

// say emits what was added to the text. It is the beginning of the answer if that is what the artifacts say.
func (a *turnAnswer) say(added string) {
	if added == "" || a.diverged {
		return
	}
	a.said.WriteString(added)
	if a.emit != nil {
		a.emit(engine.Progress{Text: added})
	}
}

// artifactText is the text of the artifacts that have one.
func (a *turnAnswer) artifactText() string {
	var texts []string
	for _, artifact := range a.artifacts {
		if artifact.text.Len() > 0 {
			texts = append(texts, artifact.text.String())
		}
	}
	return strings.Join(texts, betweenArtifacts)
}

// ended reports whether the agent will do no more: it has answered, or the task has ended, or waits for somebody.
func (a *turnAnswer) ended() bool {
	working := a.state == "" || a.state == a2a.TaskStateSubmitted || a.state == a2a.TaskStateWorking
	return a.message != nil || a.heard && !working || a.unknown != ""
}

// open reports whether there is a task that has not ended, as far as is known.
func (a *turnAnswer) open() bool { return a.task != "" && a.message == nil && !a.state.Terminal() }

// result is the text of the answer, or why there is none.
func (a *turnAnswer) result() (string, error) {
	if a.message == nil {
		if err := a.failure(); err != nil {
			return "", err
		}
	}
	sources := [][]*partContent{a.artifacts, {&a.stateMessage}}
	if a.message != nil {
		sources = [][]*partContent{{a.message}}
	}
	for _, contents := range sources {
		text := a.pick(contents)
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(text) > answers.MaxReply {
			return "", answers.ErrTooLarge
		}
		return text, nil
	}
	if a.files() > 0 {
		return "", errors.New("the agent answered with files and no text; files are not read")
	}
	return "", errors.New("the agent's answer has no text")
}

// pick is the text of contents, or their JSON if there is no text or JSON is asked for.
func (a *turnAnswer) pick(contents []*partContent) string {
	var texts, data []string
	for _, content := range contents {
		if content.text.Len() > 0 {
			texts = append(texts, content.text.String())
		}
		data = append(data, content.data...)
	}
	text := strings.Join(texts, betweenArtifacts)
	switch {
	case len(data) > 0 && a.schema:
		return data[len(data)-1]
	case strings.TrimSpace(text) == "":
		return strings.Join(data, "\n")
	default:
		return text
	}
}

// files counts the files in the answer.
func (a *turnAnswer) files() int {
	files := a.stateMessage.files
	for _, artifact := range a.artifacts {
		files += artifact.files
	}
	if a.message != nil {
		files += a.message.files
	}
	return files
}

// failure is why a task gives no answer, nil if it is complete.
func (a *turnAnswer) failure() error {
	problem, hint := "", ""
	switch a.state {
	case a2a.TaskStateCompleted:
		return nil
	case a2a.TaskStateInputRequired:
		problem, hint = "the agent asks for more input (input-required)", "nobody is there to give it"
	case a2a.TaskStateAuthRequired:
		problem, hint = "the agent asks for an authorization (auth-required)", "nobody is there to give it"
	case a2a.TaskStateFailed:
		problem = "the agent says that the task failed"
	case a2a.TaskStateRejected:
		problem = "the agent rejected the task"
	case a2a.TaskStateCanceled:
		problem = "the agent canceled the task"
	default:
		problem = fmt.Sprintf("the task is in the state %.40q, which the runner does not know", a.state)
	}
	words := a.stateMessage.text.String()
	return &answers.Error{Problem: problem, Text: answers.Beginning(words), Hint: hint}
}
