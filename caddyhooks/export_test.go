package caddyhooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/admin"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/adminclient"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/cli"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/ingress"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/observe"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/service"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/settings"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/sse"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/storefile"
)

// ShortenBodyTime lets slow bodies be ended soon.
func ShortenBodyTime(d time.Duration) (restore func()) {
	ingress.ShorterBodyTime.Store(int64(d))
	return func() { ingress.ShorterBodyTime.Store(0) }
}

// BytesOfBodies is how many bytes of bodies and messages the default instance counts now.
func BytesOfBodies() int64 { return service.Running.Find("default").Memory.Used.Load() }

// SettingNames returns the name in JSON and the directive of every setting.
func SettingNames() (names [][2]string) {
	for _, e := range settings.AllSettings {
		names = append(names, [2]string{e.JSONName(), e.CaddyfileDirective(new(settings.Settings)).Word})
	}
	return names
}

// AdminEndpoint is an endpoint of the admin API, as tests go through all of them.
type AdminEndpoint struct {
	Pattern    string
	Parameters []string
}

// AdminEndpoints are all of them.
func AdminEndpoints() (all []AdminEndpoint) {
	for _, endpoints := range []admin.Endpoints{admin.InstanceEndpoints, admin.GlobalEndpoints} {
		for path, methods := range endpoints {
			for _, e := range methods {
				all = append(all, AdminEndpoint{e.Method + " " + path, e.Parameters})
			}
		}
	}
	return all
}

// StopNotingRefusals lets an instance that has had no request yet neither remember nor log refused requests.
func StopNotingRefusals(instance string) { service.Running.Find(instance).Refused = nil }

// StopCounting lets an instance that has had no request yet go on without metrics.
func StopCounting(instance string) {
	in := service.Running.Find(instance)
	in.Meters, in.EngineConfig.Metrics = nil, nil
	detach := in.Detach
	in.Detach = in.Service.Engine.Attach(in.EngineConfig)
	detach()
}

// AddStream adds an endpoint that sends a line at once, and the next one for each value from more.
func AddStream(path string, more <-chan string) (remove func()) {
	admin.InstanceEndpoints.Handle("GET "+path, func(_ *service.Instance, w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", "text/event-stream")
		for line := "data: first\n\n"; ; {
			controller := http.NewResponseController(w)
			_, err := io.WriteString(w, line)
			if err = errors.Join(err, controller.SetWriteDeadline(time.Time{}), controller.Flush()); err != nil {
				return err
			}
			var ok bool
			select {
			case line, ok = <-more:
			case <-r.Context().Done():
			}
			if !ok {
				return nil
			}
		}
	})
	return func() { delete(admin.InstanceEndpoints, path) }
}

// LocalPage is the page of `caddy hooks dashboard` with these flags, and a function that returns the query of a new link.
func LocalPage(flags ...string) (page http.Handler, newLink func() string, err error) {
	cmd := new(cobra.Command)
	cli.HooksCommand(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		return nil, nil, err
	}
	address, _ := cmd.Flags().GetString("address")
	instance, _ := cmd.Flags().GetString("instance")
	client, err := adminclient.New(address)
	if err != nil {
		return nil, nil, err
	}
	local := adminclient.NewLocalPage(client, instance)
	return local.Handler(), local.NewLink, nil
}

// HelpOf is the help of a verb of `caddy hooks`.
func HelpOf(verb string) string {
	cmd, out := new(cobra.Command), new(strings.Builder)
	cli.HooksCommand(cmd)
	cmd.SetOut(out)
	cmd.SetArgs([]string{verb, "--help"})
	if err := cmd.Execute(); err != nil {
		return err.Error()
	}
	return out.String()
}

// AdminAPI is the admin API as a dashboard serves it to an operator who sees no texts in lists.
func AdminAPI(hideTexts bool) http.Handler {
	mux := http.NewServeMux()
	for _, route := range new(Admin).Routes() {
		mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
			r = admin.WithCaller(r, admin.Caller{By: "ops", Via: "dashboard", HideTexts: hideTexts})
			if err := route.Handler.ServeHTTP(w, r); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return mux
}

// HoldSearches takes all slots of an instance for searches, until they are given back.
func HoldSearches(instance string) (free func()) {
	return hold(service.Running.Find(instance).Service.Searches)
}

// HoldExports is HoldSearches for exports.
func HoldExports(instance string) (free func()) {
	return hold(service.Running.Find(instance).Service.Exports)
}

func hold(s service.Slots) (free func()) {
	for range cap(s) {
		s <- struct{}{}
	}
	return func() {
		for range cap(s) {
			<-s
		}
	}
}

// ForgetPreviews lets every user of the instance "default" ask for previews as if there had been none.
func ForgetPreviews() {
	limits := &service.Running.Find("default").Service.Previews
	limits.Mu.Lock()
	defer limits.Mu.Unlock()
	limits.ByUser = nil
}

// SampleNext has the next request to each hook of the instance "default" sampled, however soon it comes.
func SampleNext() {
	if all := service.Running.Find("default").Service.Samples.ByHook.Load(); all != nil {
		for _, of := range *all {
			of.LastAt.Store(0)
		}
	}
}

// Shorten sets a time that tests would have to wait for, or a limit that they would have to reach, until the test is over. Call it before
// Caddy is started, which has then stopped when the value is put back.
func Shorten[T any](t testing.TB, value *T, to T) {
	before := *value
	t.Cleanup(func() { *value = before })
	*value = to
}

// What tests shorten.
var (
	BackupPatience = &admin.BackupPatience  // for a client to take a part of a backup
	FreshFor       = &observe.FreshFor      // figures of the store
	LastReconnect  = &cli.LastReconnect     // of a command that follows events
	LockTimeout    = &storefile.LockTimeout // for a file of a store
	MaxHooks       = &settings.MaxHooks     // of an instance
	QueueCountAge  = &service.QueueCountAge // in answers about the health
	WritePatience  = &sse.WritePatience     // for a client to take an event
)

// RunVerb runs a verb of `caddy hooks`, and returns what it prints.
func RunVerb(args ...string) (string, error) {
	out := new(strings.Builder)
	err := RunCommand(strings.NewReader(""), out, out, args...)
	return out.String(), err
}

// RunCommand runs `caddy hooks` with these arguments. Wrong usage is an error of Caddy's with the exit code 2.
func RunCommand(in io.Reader, out, errs io.Writer, args ...string) error {
	return RunCommandUntil(context.Background(), in, out, errs, args...)
}

// CompleteCommand is what a shell gets that completes the last word of `caddy hooks` with these arguments.
func CompleteCommand(args ...string) (out, errs string, err error) {
	var stdout, stderr strings.Builder
	root := caddyWithHooks(strings.NewReader(""), &stdout, &stderr)
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd, "hooks"}, args...))
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

// RunCommandUntil is RunCommand for a command that goes on until ctx is done.
func RunCommandUntil(ctx context.Context, in io.Reader, out, errs io.Writer, args ...string) error {
	root := caddyWithHooks(in, out, errs)
	root.SetArgs(append([]string{"hooks"}, args...))
	return root.ExecuteContext(ctx)
}

// caddyWithHooks is Caddy's own command, as far as `caddy hooks` knows it.
func caddyWithHooks(in io.Reader, out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{Use: "caddy", SilenceUsage: true}
	cmd := &cobra.Command{Use: "hooks"}
	cli.HooksCommand(cmd)
	root.AddCommand(cmd)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	return root
}

// HoldSecrets lets the reading of secrets from files wait. Each configured text is sent to the channel when that begins.
func HoldSecrets(release <-chan struct{}) (begun <-chan string, restore func()) {
	texts := make(chan string, 100)
	before := service.ResolveSecret
	service.ResolveSecret = func(configured string) (string, error) {
		texts <- configured
		<-release
		return before(configured)
	}
	return texts, func() { service.ResolveSecret = before }
}
