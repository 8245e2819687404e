package caddyhooks_test

import (
	"fmt"
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
	code := m.Run()
	for _, clean := range afterTests {
		clean()
	}
	hookstest.RemoveShared() // the program that benchmarks have built
	os.Exit(code)
}
