package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// page is a page of the dashboard.
type page struct {
	name, fragment string
	shows          string // as soon as it is there
	dark           bool
}

const (
	width  = 1280
	scale  = 1.5
	lowest = 700 // as high as a picture is at least
)

// camera is a browser.
type camera struct {
	ctx   context.Context // of its tab
	close func()
}

// fonts are about as wide as those of most people's systems. DejaVu, the usual one on a server, is wider.
const fonts = `Inter, "Noto Sans", "Liberation Sans", system-ui, sans-serif`

// newCamera starts chromium. It reaches nothing but this machine.
func newCamera(ctx context.Context) (*camera, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("lang", "en-GB"),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // chromium refuses to have one for root
	}
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	// chromedp's list of what a browser may say is older than the browser; what it does not know is left out.
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	c := &camera{ctx: ctx, close: func() {
		cancel()
		stop()
	}}
	if err := chromedp.Run(ctx, emulation.SetTimezoneOverride("UTC")); err != nil {
		c.close()
		return nil, fmt.Errorf("starting chromium, which is in Debian's package of that name: %w", err)
	}
	return c, nil
}

// take takes a picture of a whole page, and returns the size of the file.
func (c *camera) take(base string, p page, file string) (size int, err error) {
	scheme := "light"
	if p.dark {
		scheme = "dark"
	}
	shows, err := json.Marshal(p.shows)
	if err != nil {
		return 0, err
	}
	var height int64
	var taken []byte
	err = chromedp.Run(c.ctx,
		emulation.SetDeviceMetricsOverride(width, lowest, scale, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		chromedp.Navigate("about:blank"), // so that the page is loaded anew
		chromedp.Navigate(base+p.fragment),
		until(`!!document.querySelector('main h1') && !document.querySelector('[aria-busy]') && /\d open\s[^]*\d dead\s[^]*Live/.test(document.body.innerText)`),
		until(fmt.Sprintf(`document.querySelector('main').innerText.includes(%s)`, shows)),
		chromedp.Evaluate(`document.documentElement.style.setProperty('--sans', '`+fonts+`')`, nil),
		chromedp.Evaluate(`document.documentElement.scrollHeight`, &height),
		chromedp.ActionFunc(func(ctx context.Context) (err error) {
			// In a window as high as the page, what sticks to an edge of the window is where it belongs.
			if err = emulation.SetDeviceMetricsOverride(width, height, scale, false).Do(ctx); err == nil {
				taken, err = cdppage.CaptureScreenshot().Do(ctx)
			}
			return err
		}))
	if err != nil {
		return 0, err
	}
	whole, err := png.Decode(bytes.NewReader(taken))
	if err != nil {
		return 0, err
	}
	return write(file, fewColours(whole))
}

// until waits until an expression is true in the page.
func until(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var err error
		for range 300 {
			ok := false
			if err = chromedp.Evaluate(expression, &ok).Do(ctx); err == nil && ok {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(100 * time.Millisecond):
			}
		}
		return errors.Join(fmt.Errorf("did not become true: %s", expression), err)
	})
}

// write writes a picture as small as can be.
func write(file string, picture image.Image) (size int, err error) {
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, picture); err != nil {
		return 0, err
	}
	return out.Len(), os.WriteFile(file, out.Bytes(), 0o600)
}
