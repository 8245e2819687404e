package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// Operators hear that a disk is almost full before it is.
func TestADiskThatIsAlmostFullIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mount(t, dir, "-t", "tmpfs", "-o", "size=48m", "tmpfs")
	p := hookstest.NewBinary(t).Serve(t, onlyWarnings, "hooks {\n enabled\n token "+hookstest.Token+"\n runner echo\n store bolt "+filepath.Join(dir, "hooks.db")+"\n}")
	says := func(path string) bool {
		resp, err := hookstest.TryRequest("GET", p.Admin+path, "", "Origin", p.Admin)
		return err == nil && resp.Status == 200 && strings.Contains(resp.Body, "store_disk_low")
	}
	if says("/hooks/health") || says("/hooks/overview") {
		t.Error("an empty disk is said to be almost full")
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 46<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if !says("/hooks/health") || !says("/hooks/overview") {
		t.Error("nobody is told that the disk is almost full")
	}
	if out, err := p.Command(nil, "hooks", "status", "--address", p.Admin).CombinedOutput(); err != nil || !strings.Contains(string(out), "the disk of the store has only") {
		t.Errorf("%v %s", err, out)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if says("/hooks/health") || says("/hooks/overview") {
		t.Error("there is room again")
	}
}
