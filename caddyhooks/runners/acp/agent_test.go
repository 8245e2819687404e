package acp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"
)

// The test binary is also an agent: a small one, whose messages say what it does.
const agentVariable = "ACP_TEST_AGENT"

func init() {
	how, ok := os.LookupEnv(agentVariable)
	if !ok {
		return
	}
	switch how {
	case "":
	case "dies at once":
		fmt.Fprintln(os.Stderr, "no key was given")
		os.Exit(3)
	case "says nothing":
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		os.Exit(0)
	case "says something else":
		fmt.Print("Hello! How can I help?\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		os.Exit(0)
	case "says something else and ends":
		fmt.Print("usage: agent")
		os.Exit(0)
	case "writes garbage":
		for {
			if _, err := fmt.Println(strings.Repeat("garbage ", 1000)); err != nil {
				os.Exit(0)
			}
		}
	case "writes a long line":
		for {
			if _, err := fmt.Print(strings.Repeat("x", 1<<20)); err != nil {
				os.Exit(0)
			}
		}
	}
	agent := &testAgent{can: os.Getenv("ACP_TEST_CAN"), cancels: make(map[acp.SessionId]context.CancelFunc), models: make(map[acp.SessionId]string), connected: make(chan struct{})}
	agent.conn = acp.NewAgentSideConnection(agent, os.Stdout, os.Stdin)
	close(agent.connected)
	<-agent.conn.Done()
	os.Exit(0)
}

// testAgent keeps its sessions in HOME, as files of the messages it got.
type testAgent struct {
	acp.Agent
	conn      *acp.AgentSideConnection
	connected chan struct{} // closed when conn is set
	can       string

	mu      sync.Mutex
	cancels map[acp.SessionId]context.CancelFunc
	models  map[acp.SessionId]string
	helper  int // a process of the agent's own

	sessions int
}

func (a *testAgent) Initialize(_ context.Context, params acp.InitializeRequest) (acp.InitializeResponse, error) {
	if params.ClientCapabilities.Terminal || params.ClientCapabilities.Fs.ReadTextFile || params.ClientCapabilities.Fs.WriteTextFile {
		return acp.InitializeResponse{}, errors.New("nobody should offer that")
	}
	var can acp.AgentCapabilities
	can.LoadSession = strings.Contains(a.can, "load")
	if strings.Contains(a.can, "resume") {
		can.SessionCapabilities.Resume = &acp.SessionResumeCapabilities{}
	}
	if strings.Contains(a.can, "close") {
		can.SessionCapabilities.Close = &acp.SessionCloseCapabilities{}
	}
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber, AgentCapabilities: can}, nil
}

func sessionFile(id acp.SessionId) string {
	return filepath.Join(os.Getenv("HOME"), "session-"+string(id))
}

func (a *testAgent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	id := acp.SessionId(rand.Text())
	if strings.Contains(a.can, "count") { // its sessions, anew in each process
		a.mu.Lock()
		a.sessions++
		id = acp.SessionId(strconv.Itoa(a.sessions))
		a.mu.Unlock()
	}
	if err := os.WriteFile(sessionFile(id), nil, 0o600); err != nil {
		return acp.NewSessionResponse{}, err
	}
	a.note("new", id)
	if strings.Contains(a.can, "helper") {
		helper := exec.Command("sleep", "1000")
		if err := helper.Start(); err != nil {
			return acp.NewSessionResponse{}, err
		}
		a.helper = helper.Process.Pid
		a.note("helper", acp.SessionId(strconv.Itoa(a.helper)))
	}
	for strings.Contains(a.can, "held") && fileExists(filepath.Join(os.Getenv("HOME"), "hold")) {
		time.Sleep(5 * time.Millisecond)
	}
	options, models := a.modelsOf(id)
	return acp.NewSessionResponse{SessionId: id, ConfigOptions: options, Models: models}, nil
}

// modelsOf are the models of a session, in the way that the agent has them.
func (a *testAgent) modelsOf(id acp.SessionId) (options []acp.SessionConfigOption, models *acp.SessionModelState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.models[id] == "" {
		a.models[id] = "usual"
		if strings.Contains(a.can, "own") { // as Codex has it: a model that is not on the list
			a.models[id] = "own"
		}
	}
	if strings.Contains(a.can, "option") {
		list := acp.SessionConfigSelectOptionsUngrouped{{Name: "Usual", Value: "usual"}, {Name: "Small", Value: "small"}}
		options = []acp.SessionConfigOption{{Select: &acp.SessionConfigOptionSelect{
			Id: "model", Name: "Model", Type: "select", CurrentValue: acp.SessionConfigValueId(a.models[id]), Options: acp.SessionConfigSelectOptions{Ungrouped: &list},
		}}}
	}
	if strings.Contains(a.can, "models") {
		models = &acp.SessionModelState{AvailableModels: []acp.ModelInfo{{ModelId: "usual", Name: "Usual"}}, CurrentModelId: acp.ModelId(a.models[id])}
	}
	return options, models
}

func (a *testAgent) SetSessionConfigOption(_ context.Context, params acp.SetSessionConfigOptionRequest) (acp.SetSessionConfigOptionResponse, error) {
	value := params.ValueId
	if value == nil || value.ConfigId != "model" || !slices.Contains([]string{"usual", "small"}, string(value.Value)) {
		return acp.SetSessionConfigOptionResponse{}, &acp.RequestError{Code: -32602, Message: "there is no such model on the list"}
	}
	a.setModel(value.SessionId, string(value.Value))
	options, _ := a.modelsOf(value.SessionId)
	return acp.SetSessionConfigOptionResponse{ConfigOptions: options}, nil
}

func (a *testAgent) UnstableSetSessionModel(_ context.Context, params acp.UnstableSetSessionModelRequest) (acp.UnstableSetSessionModelResponse, error) {
	if params.ModelId == "none" {
		return acp.UnstableSetSessionModelResponse{}, &acp.RequestError{Code: -32602, Message: "there is no such model"}
	}
	a.setModel(params.SessionId, string(params.ModelId))
	return acp.UnstableSetSessionModelResponse{}, nil
}

func (a *testAgent) setModel(id acp.SessionId, model string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.models[id] = model
}

// note keeps a list of what was done, for tests to look at.
func (a *testAgent) note(what string, id acp.SessionId) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(os.Getenv("HOME"), "notes"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, what, id, os.Getpid())
}

func (a *testAgent) ResumeSession(_ context.Context, params acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	a.note("resume", params.SessionId)
	if strings.Contains(a.can, "unseen") { // as Codex does: that a session is lost is known only with a message
		return acp.ResumeSessionResponse{}, nil
	}
	if _, err := os.Stat(sessionFile(params.SessionId)); err != nil {
		return acp.ResumeSessionResponse{}, &acp.RequestError{Code: -32002, Message: "there is no such session"}
	}
	options, models := a.modelsOf(params.SessionId)
	return acp.ResumeSessionResponse{ConfigOptions: options, Models: models}, nil
}

func (a *testAgent) LoadSession(ctx context.Context, params acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	<-a.connected
	a.note("load", params.SessionId)
	data, err := os.ReadFile(sessionFile(params.SessionId))
	if err != nil {
		return acp.LoadSessionResponse{}, err
	}
	repeat := func() {
		for range 2000 { // more than the client keeps
			for line := range strings.Lines(string(data)) {
				a.say(context.WithoutCancel(ctx), params.SessionId, "as you said: "+line)
			}
		}
	}
	if strings.Contains(a.can, "late") { // as Gemini CLI does
		go repeat()
	} else {
		repeat()
	}
	return acp.LoadSessionResponse{}, nil
}

func (a *testAgent) CloseSession(_ context.Context, params acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	a.note("close", params.SessionId)
	a.setModel(params.SessionId, "")
	return acp.CloseSessionResponse{}, nil
}

func (a *testAgent) Cancel(_ context.Context, params acp.CancelNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancels[params.SessionId]; cancel != nil {
		cancel()
	}
	return nil
}

func (a *testAgent) say(ctx context.Context, id acp.SessionId, text string) {
	_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateAgentMessageText(text)})
}

// Prompt does as the first word of the message says. The rest is for that.
func (a *testAgent) Prompt(_ context.Context, params acp.PromptRequest) (acp.PromptResponse, error) {
	<-a.connected
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id := params.SessionId
	a.mu.Lock()
	a.cancels[id] = cancel
	a.mu.Unlock()
	message := params.Prompt[0].Text.Text
	past, err := os.ReadFile(sessionFile(id))
	if err != nil {
		if strings.HasPrefix(message, "speak first") {
			a.say(ctx, id, "Let me see.")
		}
		return acp.PromptResponse{}, &acp.RequestError{Code: -32002, Message: "there is no such session"}
	}
	if err := os.WriteFile(sessionFile(id), append(past, []byte(message+"\n")...), 0o600); err != nil {
		return acp.PromptResponse{}, err
	}
	word, rest, _ := strings.Cut(message, " ")
	switch word {
	case "trace":
		a.say(ctx, id, fmt.Sprint(params.Meta))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "stop": // with a reason
		a.say(ctx, id, "half an answer")
		return acp.PromptResponse{StopReason: acp.StopReason(rest)}, nil
	case "fail":
		a.say(ctx, id, "the text of the error")
		return acp.PromptResponse{}, &acp.RequestError{Code: -32603, Message: rest, Data: map[string]any{"details": "the model is unreachable"}}
	case "silent":
		_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateAgentThoughtText("I think")})
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "crash":
		a.say(ctx, id, "about to")
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(7)
	case "wait": // until it is cancelled
		a.say(ctx, id, "waiting")
		<-ctx.Done()
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	case "complain": // and then wait until it is cancelled
		fmt.Fprintln(os.Stderr, rest)
		a.say(ctx, id, "waiting")
		<-ctx.Done()
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	case "for": // a file to appear
		a.say(ctx, id, "waiting")
		for {
			if _, err := os.Stat(rest); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	case "deaf": // to a cancel
		a.say(ctx, id, "waiting")
		time.Sleep(time.Hour)
	case "flood": // with texts of that many bytes
		size, _ := strconv.Atoi(rest)
		for ctx.Err() == nil {
			a.say(ctx, id, strings.Repeat("x", size))
		}
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	case "think": // for ever
		for ctx.Err() == nil {
			_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateAgentThoughtText(strings.Repeat("x", 1<<20))})
		}
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	case "burst": // of that many pieces
		n, _ := strconv.Atoi(rest)
		for range n {
			a.say(ctx, id, "x")
		}
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "garbage":
		fmt.Println("this is no message")
		fmt.Println(`{"jsonrpc":"2.0","method":"session/update","params":[1,2]}`)
		fmt.Println(`{"jsonrpc":"2.0","id":"nobody's","result":{}}`)
	case "ask": // kinds of tools
		a.ask(ctx, id, strings.Fields(rest))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "parallel": // so many requests at once
		return a.askAtOnce(ctx, id, rest)
	case "ask-and-crash": // when a file appears
		go a.permission(ctx, id, "execute")
		awaitFile(rest)
		os.Exit(7)
	case "ask-and-leave": // the request when a file appears
		asking, leave := context.WithCancel(ctx)
		go func() {
			awaitFile(rest)
			leave()
		}()
		a.say(ctx, id, a.permission(asking, id, "execute"))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "leave": // a process behind
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			return acp.PromptResponse{}, err
		}
		a.say(ctx, id, fmt.Sprint(child.Process.Pid, " ", a.helper))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "orphan": // a process behind whose parent has ended
		pid, err := exec.CommandContext(ctx, "/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
		if err != nil {
			return acp.PromptResponse{}, err
		}
		a.say(ctx, id, string(bytes.TrimSpace(pid)))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "model":
		a.mu.Lock()
		model := a.models[id]
		a.mu.Unlock()
		a.say(ctx, id, model)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "use": // as much as the JSON says
		return a.use(ctx, id, rest)
	case "pid":
		a.say(ctx, id, strconv.Itoa(os.Getpid()))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	case "home":
		a.say(ctx, id, os.Getenv("HOME"))
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	}
	answer, _ := json.Marshal(message)
	a.say(ctx, id, fmt.Sprintf("turn %d: ", strings.Count(string(past), "\n")+1))
	a.say(ctx, id, string(answer))
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// use tells what was used.
func (a *testAgent) use(ctx context.Context, id acp.SessionId, told string) (acp.PromptResponse, error) {
	var used struct {
		Cost  *acp.Cost
		Usage *acp.Usage
		Meta  map[string]any
		How   string
	}
	if err := json.Unmarshal([]byte(told), &used); err != nil {
		return acp.PromptResponse{}, err
	}
	if used.Cost != nil {
		update := acp.SessionUpdate{UsageUpdate: &acp.SessionUsageUpdate{SessionUpdate: "usage_update", Cost: used.Cost, Size: 200000, Used: 15}}
		if err := a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: update}); err != nil {
			return acp.PromptResponse{}, err
		}
	}
	a.say(ctx, id, "Hello")
	end := acp.PromptResponse{StopReason: acp.StopReasonEndTurn, Usage: used.Usage, Meta: used.Meta}
	switch used.How {
	case "fail":
		return end, &acp.RequestError{Code: -32603, Message: "no"}
	case "wait":
		<-ctx.Done()
		end.StopReason = acp.StopReasonCancelled
	}
	return end, nil
}

// ask asks for tools of some kinds, and says which answers it got.
func (a *testAgent) ask(ctx context.Context, id acp.SessionId, kinds []string) {
	for _, word := range kinds {
		kind, times, _ := strings.Cut(word, "*")
		n, err := strconv.Atoi(times)
		if err != nil {
			n = 1
		}
		for range n {
			a.say(ctx, id, kind+"="+a.permission(ctx, id, kind)+" ")
		}
	}
}

// permission asks for a tool of a kind, and returns the id of the answer.
func (a *testAgent) permission(ctx context.Context, id acp.SessionId, kind string) string {
	request := acp.RequestPermissionRequest{SessionId: id, Options: []acp.PermissionOption{
		{OptionId: "aa", Name: "Always", Kind: acp.PermissionOptionKindAllowAlways},
		{OptionId: "a", Name: "Yes", Kind: acp.PermissionOptionKindAllowOnce},
		{OptionId: "ra", Name: "Never", Kind: acp.PermissionOptionKindRejectAlways},
		{OptionId: "r", Name: "No", Kind: acp.PermissionOptionKindRejectOnce},
	}}
	title := "use " + kind
	request.ToolCall = acp.ToolCallUpdate{ToolCallId: acp.ToolCallId(kind), Title: &title}
	switch kind {
	case "nothing-fits":
		request.Options = request.Options[:1]
	case "told-before":
		_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.StartToolCall(acp.ToolCallId(kind), "t", acp.WithStartKind(acp.ToolKindRead))})
	case "no-kind":
	case "told-in-parts":
		as := acp.ToolKindEdit
		_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.StartToolCall(acp.ToolCallId(kind), "Edit a file", acp.WithStartKind(as))})
		_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: id, Update: acp.UpdateToolCall(acp.ToolCallId(kind),
			acp.WithUpdateRawInput(map[string]any{"new": "text"}), acp.WithUpdateLocations([]acp.ToolCallLocation{{Path: "/srv/a.go"}, {Path: "/srv/b.go"}}))})
		request.ToolCall.Title = nil
	case "execute":
		as := acp.ToolKindExecute
		request.ToolCall.Kind, request.ToolCall.RawInput = &as, map[string]any{"command": "make\nrm -r /", "description": "build it"}
	default:
		as := acp.ToolKind(kind)
		request.ToolCall.Kind = &as
	}
	response, err := a.conn.RequestPermission(ctx, request)
	switch {
	case err != nil:
		return "failed"
	case response.Outcome.Selected != nil:
		return string(response.Outcome.Selected.OptionId)
	}
	return "cancelled"
}

// askAtOnce asks for the same several times at once, and says each answer when it comes.
func (a *testAgent) askAtOnce(ctx context.Context, id acp.SessionId, times string) (acp.PromptResponse, error) {
	n, err := strconv.Atoi(times)
	if err != nil {
		return acp.PromptResponse{}, err
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() { a.say(ctx, id, a.permission(ctx, id, "execute")) })
	}
	all.Wait()
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

func awaitFile(path string) {
	for !fileExists(path) {
		time.Sleep(5 * time.Millisecond)
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
