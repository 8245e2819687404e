package caddyhooks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// BenchmarkIdle measures the memory of a Caddy that has just started and has nothing to do: with a hook, with this module and no hook, and
// without the module. anon is its own memory; rss has the pages of the program that were read as well. They are measured in turns. The
// values are medians, the ratios those to a Caddy without the module.
func BenchmarkIdle(b *testing.B) {
	binary, without := hookstest.NewBinary(b), buildWithoutModule(b)
	anon, rss := make(map[string][]float64), make(map[string][]float64) // megabytes
	measure := func(name, directives string, prepare func(*exec.Cmd)) {
		d := binary.Deploy(b, "", directives)
		d.Prepare = prepare
		caddy := d.Start(b)
		own, file := residentMemory(b, caddy.Cmd.Process.Pid)
		caddy.Kill()
		anon[name] = append(anon[name], float64(own)/1e6)
		rss[name] = append(rss[name], float64(own+file)/1e6)
	}
	for b.Loop() {
		measure("hook", "hooks {\nenabled\ntoken "+hookstest.Token+"\nrunner echo\n}", nil)
		measure("module", "respond 404", nil)
		measure("without", "respond 404", func(cmd *exec.Cmd) { cmd.Path = without })
	}
	median := func(each []float64) float64 {
		slices.Sort(each)
		return each[len(each)/2]
	}
	for _, way := range []string{"hook", "module", "without"} {
		b.ReportMetric(median(anon[way]), way+"-anon-MB")
		b.ReportMetric(median(rss[way]), way+"-rss-MB")
	}
	b.ReportMetric(median(anon["hook"])/median(anon["without"]), "anon-ratio")
	b.ReportMetric(median(rss["hook"])/median(rss["without"]), "rss-ratio")
	b.ReportMetric(0, "ns/op")
}

// buildWithoutModule builds Caddy as it is.
func buildWithoutModule(b *testing.B) (path string) {
	dir := b.TempDir()
	source := filepath.Join(dir, "main.go")
	text := "package main\n\nimport (\n\tcaddycmd \"github.com/caddyserver/caddy/v2/cmd\"\n" +
		"\t_ \"github.com/caddyserver/caddy/v2/modules/standard\"\n)\n\nfunc main() { caddycmd.Main() }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	path = filepath.Join(dir, "caddy")
	if out, err := exec.Command("go", "build", "-o", path, source).CombinedOutput(); err != nil {
		b.Fatalf("building Caddy: %v\n%s", err, out)
	}
	return path
}
