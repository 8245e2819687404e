// Package dsn reads the DSN of a PostgreSQL store, and opens connections by it. None of its errors has a secret in it. It imports caddyconf
// alone.
package dsn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/caddyconf"
)

// DSN is how to reach a database. It is a secret.
type DSN struct {
	Text   string
	Config *pgx.ConnConfig // never changed
}

// HostTime is how long it may take to reach one of the hosts of a DSN, so that there is time left for another one. Tests change it, since
// their machine may be busy.
var HostTime = 3 * time.Second

// Parse reads a URL, or a list of settings. Its errors have nothing of the text in them but the path of a file that cannot be read.
// onNotice gets what servers remark.
func Parse(text string, onNotice pgconn.NoticeHandler) (DSN, error) {
	if err := check(text); err != nil {
		return DSN{}, err
	}
	pool, err := pgxpool.ParseConfig(text) // which takes what pgx takes, and the settings of pools
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return DSN{}, fmt.Errorf("the DSN of the store names the file %s, which cannot be read: %w", file.Path, file.Err)
	case err != nil && strings.HasSuffix(err.Error(), "(sslmode is invalid)"):
		return DSN{}, errors.New("the sslmode in the DSN of the store is not one of disable, allow, prefer, require, verify-ca and verify-full")
	case err != nil:
		return DSN{}, errors.New("the DSN of the store cannot be read: it is a URL such as " +
			"postgres://user:password@host/database?sslmode=verify-full, " +
			"or a list such as host=… user=… dbname=…")
	}
	config := pool.ConnConfig
	if config.ConnectTimeout == 0 || config.ConnectTimeout > HostTime {
		config.ConnectTimeout = HostTime
	}
	// A link that has gone silent is found by whoever only listens.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}}
	config.DialFunc = dialOften(dialer.DialContext)
	config.OnNotice = onNotice
	if config.StatementCacheCapacity == 0 && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddyhooks"
	}
	for name := range config.RuntimeParams {
		if !settingName.MatchString(name) { // the server would repeat it
			return DSN{}, errEscape
		}
	}
	// The database or the role may have others. A pgbouncer passes these on.
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	return DSN{text, config}, nil
}

// settingName are the names of what a server can be told.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

var errEscape = errors.New("the DSN of the store cannot be read: in a URL, write the characters @ / ? # of a password as %40 %2F %3F %23")

// check finds mistakes by which a password would be taken for something that is no secret, such as the host.
func check(text string) error {
	switch {
	case strings.HasPrefix(text, "$"):
		return errors.New("the DSN of the store begins with $: write {env.HOOKS_DSN} for an environment variable of that name")
	case strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'"):
		return errors.New("the DSN of the store begins with a quote: it may be from a file that is not read by a shell, and needs none there")
	}
	_, rest, isURL := strings.Cut(text, "://")
	if !isURL || !strings.HasPrefix(text, "postgres") {
		return nil
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Count(authority, "@") > 1 || strings.Contains(path, "@") || strings.Contains(text, "#") {
		return errEscape
	}
	for setting := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(setting, "="); name != "" && !settingName.MatchString(name) {
			return errEscape
		}
	}
	return nil
}

// Dial opens a connection. Its transactions are those that the functions need.
func (n DSN) Dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, HostTime*time.Duration(1+len(n.Config.Fallbacks)))
	defer cancel()
	conn, level, err := n.dialAs(ctx, n.Config.Copy())
	if err != nil || level == readCommitted {
		return conn, err
	}
	// A pgbouncer does not pass this on, and may refuse it: so it is sent only where it is needed.
	Close(conn)
	config := n.Config.Copy()
	config.RuntimeParams["default_transaction_isolation"] = readCommitted
	conn, changed, err := n.dialAs(ctx, config)
	if err == nil && changed == readCommitted {
		return conn, nil
	}
	if err == nil {
		Close(conn)
	} else if failed := new(DialError); !errors.As(err, &failed) || failed.Code != "08P01" { // as of a pgbouncer that does not take a setting
		return nil, err
	}
	return nil, &DialError{Refused: true, Text: fmt.Sprintf("%s: transactions are isolated by default as %s, and this store needs %s: "+
		"ALTER ROLE … SET default_transaction_isolation = '%[3]s' for the role of the DSN", n.Place(), level, readCommitted)}
}

// Close closes a connection, and tells the server if that takes no time.
func Close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// readCommitted is the isolation of transactions that see what was committed while they waited for a lock. With any other one, a run that
// is added while the one before it ends would never be claimed.
const readCommitted = "read committed"

// dialAs opens a connection, and tells how its transactions are isolated.
func (n DSN) dialAs(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, level string, err error) {
	if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, "", n.Plain(err)
	}
	if err = conn.QueryRow(ctx, "SELECT current_setting('transaction_isolation')").Scan(&level); err != nil {
		Close(conn)
		return nil, "", n.Plain(err)
	}
	return conn, level, nil
}

// DialError is why a connection could not be opened, without secrets.
type DialError struct {
	Text    string
	Code    string // of PostgreSQL, "" if the server did not answer
	Refused bool   // to try again is of no use before somebody has changed something
}

func (e *DialError) Error() string { return e.Text }

// Plain is an error without the password and on one line.
func (n DSN) Plain(err error) error {
	plain := &DialError{Text: strings.Join(strings.Fields(err.Error()), " ")}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		plain.Code = refused.Code
		plain.Text = fmt.Sprintf("%s: %s (%s)", n.Place(), refused.Message, refused.Code)
		switch refused.Code {
		case "28P01", "28000", "3D000", "42501", // wrong password, no such user or not from here, no such database, no right
			"42704", "22023": // the DSN has a setting that the server does not know, or a value that it does not take
			plain.Refused = true
		}
	}
	if len(n.Config.Fallbacks) == 0 && strings.Contains(plain.Text, "server refused TLS connection") {
		plain.Refused = true
		plain.Text = n.Place() + ": the server has no TLS, and sslmode asks for it"
	}
	for _, secret := range []string{n.Text, n.Config.Password} {
		if secret != "" {
			plain.Text = strings.ReplaceAll(plain.Text, secret, "••••")
		}
	}
	return plain
}

// Place names the hosts and the database.
func (n DSN) Place() string {
	var hosts []string
	for host, port := range n.hosts {
		if name := hostAndPort(host, port); len(hosts) == 0 || hosts[len(hosts)-1] != name {
			hosts = append(hosts, name)
		}
	}
	return strings.Join(hosts, ",") + "/" + n.Config.Database
}

func hostAndPort(host string, port uint16) string {
	if strings.HasPrefix(host, "/") || port == 5432 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// hosts goes over the hosts in their order; one that is tried with TLS and without comes twice.
func (n DSN) hosts(yield func(host string, port uint16) bool) {
	if !yield(n.Config.Host, n.Config.Port) {
		return
	}
	for _, other := range n.Config.Fallbacks {
		if !yield(other.Host, other.Port) {
			return
		}
	}
}

// Warnings are about a DSN, configured as it is written in the configuration.
func (n DSN) Warnings(configured string) (found []string) {
	if !caddyconf.HasPlaceholder(configured) && n.Config.Password != "" && strings.Contains(configured, n.Config.Password) {
		found = append(found, "the DSN is part of what Caddy shows at /config/, with its password: write {env.HOOKS_DSN} and set that "+
			"environment variable")
	}
	all := []*pgconn.FallbackConfig{{Host: n.Config.Host, TLSConfig: n.Config.TLSConfig}}
	for _, way := range append(all, n.Config.Fallbacks...) {
		// Of sslmode verify-ca pgx makes a check of its own.
		isChecked := way.TLSConfig != nil && (!way.TLSConfig.InsecureSkipVerify || way.TLSConfig.VerifyPeerCertificate != nil)
		if !isChecked && !isThisMachine(way.Host) {
			return append(found, "the connection to "+way.Host+" does not check that it is the right server, which others may then read and "+
				"change: add sslmode=verify-full to the DSN")
		}
	}
	return found
}

func isThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || err == nil &&
		address.IsLoopback()
}
