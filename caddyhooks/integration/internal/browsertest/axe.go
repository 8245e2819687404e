package browsertest

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
)

// The version of axe-core, and what it must look like.
//
//go:embed axe/package.json axe/package-lock.json
var axePackage embed.FS

// axe is the source of axe-core, an accessibility checker, which is installed once for all tests.
var axe = sync.OnceValues(func() (source string, err error) {
	dir, err := os.MkdirTemp("", "caddyhooks-axe-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	files, err := fs.Sub(axePackage, "axe")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return "", err
	}
	if err := npmtest.Install(dir); err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(data), err
})

// WantAccessible checks that axe-core finds nothing to object to in the page as it is looked at now, once it is drawn.
func (tab *Tab) WantAccessible() {
	tab.t.Helper()
	tab.Until("the page has its heading", `document.querySelector('h1') !== null`)
	findings, err := tab.axeFindings()
	if err != nil {
		tab.t.Fatal(err)
	}
	for _, finding := range findings {
		tab.t.Errorf("axe-core: %s", finding)
	}
}

// axeFindings runs axe-core in a world of its own, so that the page's scripts and their policy have nothing to do with it.
func (tab *Tab) axeFindings() (findings []string, err error) {
	source, err := axe()
	if err != nil {
		return nil, err
	}
	var frames struct {
		Tree struct {
			Frame struct {
				ID string `json:"id"`
			} `json:"frame"`
		} `json:"frameTree"`
	}
	if err := tab.try(call("Page.getFrameTree", map[string]any{}, &frames)); err != nil {
		return nil, err
	}
	var world struct {
		ID int64 `json:"executionContextId"`
	}
	if err := tab.try(call("Page.createIsolatedWorld", map[string]any{"frameId": frames.Tree.Frame.ID, "worldName": "axe"}, &world)); err != nil {
		return nil, err
	}
	var answer struct {
		Result struct {
			Value []struct {
				ID    string `json:"id"`
				Help  string `json:"help"`
				Nodes []struct {
					HTML    string `json:"html"`
					Summary string `json:"failureSummary"`
				} `json:"nodes"`
			} `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	run := source + "\n;axe.run(document, {resultTypes: ['violations']}).then(r => JSON.parse(JSON.stringify(r.violations)))"
	if err := tab.try(call("Runtime.evaluate", map[string]any{"expression": run, "contextId": world.ID, "awaitPromise": true, "returnByValue": true}, &answer)); err != nil {
		return nil, err
	}
	if len(answer.Exception) > 0 {
		return nil, errors.New("axe-core failed: " + string(answer.Exception))
	}
	for _, violation := range answer.Result.Value {
		for _, node := range violation.Nodes {
			findings = append(findings, fmt.Sprintf("%s: %s: %.300s %s", violation.ID, violation.Help, node.HTML, strings.ReplaceAll(node.Summary, "\n", " ")))
		}
	}
	return findings, nil
}
