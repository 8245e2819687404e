package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed page.html assets
var files embed.FS

// contentTypes are those of assets. A file of another kind is not served.
var contentTypes = map[string]string{
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".woff2": "font/woff2",
}

// asset is a file that the page refers to.
type asset struct {
	contentType string
	plain       []byte
	gzipped     []byte // nil if that is not smaller
}

// site is the page with its assets, as all doors serve it. Most processes never serve it, so it is made when it is first asked for.
var site = sync.OnceValue(func() *pageFiles {
	loaded, err := loadSite(files)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return loaded
})

type pageFiles struct {
	page   []byte
	hash   string // of all assets; a part of their addresses, which therefore never change what they mean
	assets map[string]asset
}

// loadSite reads page and assets.
func loadSite(from fs.FS) (*pageFiles, error) {
	loaded := &pageFiles{assets: make(map[string]asset)}
	hash := sha256.New()
	zip, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // fails for unknown levels only
	err := fs.WalkDir(from, "assets", func(name string, entry fs.DirEntry, err error) error {
		contentType, ok := contentTypes[path.Ext(name)]
		if err != nil || entry.IsDir() || !ok {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		if ext := path.Ext(name); ext == ".js" || ext == ".css" {
			content = withoutComments(content)
		}
		loaded.assets[strings.TrimPrefix(name, "assets/")] = asset{contentType, content, compressed(zip, content)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the assets of the page: %w", err)
	}
	loaded.hash = hex.EncodeToString(hash.Sum(nil)[:10])
	page, err := fs.ReadFile(from, "page.html")
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	loaded.page = bytes.ReplaceAll(page, []byte("{hash}"), []byte(loaded.hash))
	return loaded, nil
}

// withoutComments is a script or a stylesheet without indentation and without the lines that are nothing but a comment: a tenth
// of what a browser would fetch. The lines stay, empty, so that errors name those of the source. A comment beside code stays as well,
// since telling it from a text takes a parser. For the same reason no text may go on over several lines; a test sees to that.
func withoutComments(source []byte) []byte {
	var kept bytes.Buffer
	inside := false
	for line := range bytes.Lines(source) {
		line = bytes.TrimLeft(line, "\t ")
		text := bytes.TrimSpace(line)
		begins, ends := bytes.HasPrefix(text, []byte("/*")), bytes.Contains(text, []byte("*/"))
		switch {
		case inside, begins && !ends, begins && bytes.Index(text, []byte("*/")) == len(text)-2, bytes.HasPrefix(text, []byte("//")):
			kept.WriteByte('\n')
		default:
			kept.Write(line)
		}
		inside = (inside || begins) && !ends
	}
	return kept.Bytes()
}

func compressed(zip *gzip.Writer, content []byte) []byte {
	var buf bytes.Buffer
	zip.Reset(&buf)
	_, _ = zip.Write(content) // a buffer takes everything
	_ = zip.Close()
	if buf.Len() >= len(content) {
		return nil
	}
	return buf.Bytes()
}

// servePage serves the page and its assets.
func (h *handler) servePage(w http.ResponseWriter, r *http.Request) error {
	site := site()
	name, isAsset := strings.CutPrefix(r.URL.Path, "/assets/"+site.hash+"/")
	found, ok := site.assets[name]
	isPage := r.URL.Path == "" || r.URL.Path == "/"
	if !isPage && (!isAsset || !ok) {
		return refuse(http.StatusNotFound, "There is nothing here. The page is at /, and below the path dashboard with: handle_path "+
			"/dashboard/* { "+
			"hooks_dashboard }")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return refuse(http.StatusMethodNotAllowed, "Method not allowed; use GET.")
	}
	if to := h.withSlash(r); isPage && to != "" {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusSeeOther)
	} else if isPage {
		writeContent(w, r, "text/html; charset=utf-8", site.page)
	} else {
		found.serve(w, r, site.hash)
	}
	return nil
}

// withSlash is the address, relative to the one that the browser asked for, that has a slash at its end. It is "" if there is
// one already. Without it, assets/ would be looked for beside the page and not below it.
func (h *handler) withSlash(r *http.Request) string {
	if h.access.PublicPath == nil {
		return ""
	}
	public := h.access.PublicPath(r)
	if public == "" || strings.HasSuffix(public, "/") {
		return ""
	}
	return "./" + path.Base(public) + "/"
}

func (a asset) serve(w http.ResponseWriter, r *http.Request, hash string) {
	h := w.Header()
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	content, tag := a.plain, `"`+hash+`"`
	if a.gzipped != nil && acceptsGzip(r) {
		content, tag = a.gzipped, `"`+hash+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeContent(w, r, a.contentType, content)
}

// acceptsGzip reports whether a client takes gzip. What it likes better does not matter.
func acceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(header, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				_, quality, _ := strings.Cut(weight, "=")
				return strings.Trim(quality, "0. ") != "" || weight == ""
			}
		}
	}
	return false
}

func writeContent(w http.ResponseWriter, r *http.Request, contentType string, content []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(content)
	}
}
