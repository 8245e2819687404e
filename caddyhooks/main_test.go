package caddyhooks_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// afterTests remove what tests share.
var afterTests []func()

func TestMain(m *testing.M) {
	if order := os.Getenv(readersVariable); order != "" { // the process of readers of BenchmarkRunReaders
		if err := readRuns(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	checker, err := newAnswerChecker(http.DefaultTransport)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" { // it would take its part of what is measured
		http.DefaultClient.Transport = checker
	}
	code := m.Run()
	if !checker.report(os.Stderr) {
		code = 1
	}
	for _, clean := range afterTests {
		clean()
	}
	hookstest.RemoveShared() // the program that benchmarks have built
	os.Exit(code)
}
