// Platforms checks that all packages of the module in the working directory, and their tests, fit the operating systems and processors
// that Caddy is released for: their types are right, and the checks of go vet find nothing. Other modules are read without the bodies of
// their functions, and nothing is compiled, which takes seconds for each platform where a compiler takes minutes.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/packages"
)

var platforms = []string{
	"linux/amd64", "linux/arm64", "linux/arm", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64",
	"freebsd/amd64", "freebsd/arm64", "freebsd/arm",
}

// vet has the analyzers of go vet, but for those about assembly and cgo, of which there is none.
var vet = []*analysis.Analyzer{
	assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer, composite.Analyzer, copylock.Analyzer, defers.Analyzer,
	directive.Analyzer, errorsas.Analyzer, hostport.Analyzer, httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer,
	lostcancel.Analyzer, nilfunc.Analyzer, printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer, stdmethods.Analyzer,
	stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer, tests.Analyzer, timeformat.Analyzer,
	unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer, unusedresult.Analyzer, waitgroup.Analyzer,
}

func main() {
	chosen := platforms
	if len(os.Args) > 1 {
		chosen = os.Args[1:]
	}
	failed := false
	for _, platform := range chosen {
		problems, err := check(platform)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, problem := range problems {
			fmt.Printf("%s: %s\n", platform, problem)
		}
		failed = failed || len(problems) > 0
		if len(problems) == 0 {
			fmt.Println(platform, "is fine")
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check lists what is wrong on a platform.
func check(platform string) (problems []string, err error) {
	system, processor, _ := strings.Cut(platform, "/")
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule, Tests: true,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
		ParseFile: func(set *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, here+string(filepath.Separator)) && !isTestMain(name) {
				for _, declared := range file.Decls {
					if function, ok := declared.(*ast.FuncDecl); ok {
						function.Body = nil
					}
				}
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range loaded {
		for _, problem := range p.Errors {
			problems = append(problems, problem.Error())
		}
	}
	if len(problems) > 0 {
		return unique(problems), nil
	}
	packages.Visit(loaded, nil, func(p *packages.Package) { p.IllTyped = false }) // for want of bodies of functions in other modules
	graph, err := checker.Analyze(vet, loaded, nil)
	if err != nil {
		return nil, err
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			problems = append(problems, fmt.Sprintf("%v: %v", action, action.Err))
		}
		for _, found := range action.Diagnostics {
			problems = append(problems, fmt.Sprintf("%v: %s", action.Package.Fset.Position(found.Pos), found.Message))
		}
	}
	return unique(problems), nil
}

// isTestMain reports whether a file is one that go test makes, in the build cache.
func isTestMain(name string) bool { return strings.HasSuffix(name, "-d") }

// unique leaves out repetitions: a package is there once more for its tests.
func unique(problems []string) []string {
	slices.Sort(problems)
	return slices.Compact(problems)
}
