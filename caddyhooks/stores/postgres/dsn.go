package postgres

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

// dsn is how to reach a database. It is a secret.
type dsn struct {
	text   string
	config *pgx.ConnConfig // never changed
}

// hostTime is how long it may take to reach one of the hosts of a DSN, so that there is time left for another one.
const hostTime = 3 * time.Second

// parseDSN reads a URL, or a list of settings. Its errors have nothing of the text in them but the path of a file that cannot be read.
func parseDSN(text string) (dsn, error) {
	if err := checkDSN(text); err != nil {
		return dsn{}, err
	}
	pool, err := pgxpool.ParseConfig(text) // which takes what pgx takes, and the settings of pools
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return dsn{}, fmt.Errorf("the DSN of the store names the file %s, which cannot be read: %w", file.Path, file.Err)
	case err != nil && strings.HasSuffix(err.Error(), "(sslmode is invalid)"):
		return dsn{}, errors.New("the sslmode in the DSN of the store is none of disable, allow, prefer, require, verify-ca and verify-full")
	case err != nil:
		return dsn{}, errors.New("the DSN of the store cannot be read: it is a URL such as postgres://user:password@host/database?sslmode=verify-full, " +
			"or a list such as host=… user=… dbname=…")
	}
	config := pool.ConnConfig
	if config.ConnectTimeout == 0 || config.ConnectTimeout > hostTime {
		config.ConnectTimeout = hostTime
	}
	// A link that has gone silent is found by whoever only listens.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}}
	config.DialFunc = dialOften(dialer.DialContext)
	config.OnNotice = noteNotReplicated
	if config.StatementCacheCapacity == 0 && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddyhooks"
	}
	for name := range config.RuntimeParams {
		if !settingName.MatchString(name) { // the server would repeat it
			return dsn{}, errEscape
		}
	}
	// The database or the role may have others. A pgbouncer passes these on.
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	return dsn{text, config}, nil
}

// settingName are the names of what a server can be told.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

var errEscape = errors.New("the DSN of the store cannot be read: in a URL, write the characters @ / ? # of a password as %40 %2F %3F %23")

// checkDSN finds mistakes by which a password would be taken for something that is no secret, such as the host.
func checkDSN(text string) error {
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

// dial opens a connection. Its transactions are those that the functions need.
func (n dsn) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostTime*time.Duration(1+len(n.config.Fallbacks)))
	defer cancel()
	conn, level, err := n.dialAs(ctx, n.config.Copy())
	if err != nil || level == readCommitted {
		return conn, err
	}
	// A pgbouncer does not pass this on, and may refuse it: so it is sent only where it is needed.
	end(&connection{Conn: conn})
	config := n.config.Copy()
	config.RuntimeParams["default_transaction_isolation"] = readCommitted
	conn, changed, err := n.dialAs(ctx, config)
	if err == nil && changed == readCommitted {
		return conn, nil
	}
	if err == nil {
		end(&connection{Conn: conn})
	} else if failed := new(dialError); !errors.As(err, &failed) || failed.code != codeProtocol {
		return nil, err
	}
	return nil, &dialError{refused: true, text: fmt.Sprintf("%s: transactions are isolated by default as %s, and this store needs %s: "+
		"ALTER ROLE … SET default_transaction_isolation = '%[3]s' for the role of the DSN", n.place(), level, readCommitted)}
}

// readCommitted is the isolation of transactions that see what was committed while they waited for a lock. With any other one, a run that is
// added while the one before it ends would never be claimed.
const readCommitted = "read committed"

// dialAs opens a connection, and tells how its transactions are isolated.
func (n dsn) dialAs(ctx context.Context, config *pgx.ConnConfig) (conn *pgx.Conn, level string, err error) {
	if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, "", n.plain(err)
	}
	if err = conn.QueryRow(ctx, "SELECT current_setting('transaction_isolation')").Scan(&level); err != nil {
		end(&connection{Conn: conn})
		return nil, "", n.plain(err)
	}
	return conn, level, nil
}

// dialError is why a connection could not be opened, without secrets.
type dialError struct {
	text    string
	code    string // of PostgreSQL, "" if the server did not answer
	refused bool   // to try again is of no use before somebody has changed something
}

func (e *dialError) Error() string { return e.text }

// plain is an error without the password and on one line.
func (n dsn) plain(err error) error {
	plain := &dialError{text: strings.Join(strings.Fields(err.Error()), " ")}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		plain.code = refused.Code
		plain.text = fmt.Sprintf("%s: %s (%s)", n.place(), refused.Message, refused.Code)
		switch refused.Code {
		case "28P01", "28000", "3D000", codeNoRight, // wrong password, no such user or not from here, no such database
			"42704", "22023": // the DSN has a setting that the server does not know, or a value that it does not take
			plain.refused = true
		}
	}
	if len(n.config.Fallbacks) == 0 && strings.Contains(plain.text, "server refused TLS connection") {
		plain.refused = true
		plain.text = n.place() + ": the server has no TLS, and sslmode asks for it"
	}
	for _, secret := range []string{n.text, n.config.Password} {
		if secret != "" {
			plain.text = strings.ReplaceAll(plain.text, secret, "••••")
		}
	}
	return plain
}

// place names the hosts and the database.
func (n dsn) place() string {
	var hosts []string
	for host, port := range n.hosts {
		if name := hostAndPort(host, port); len(hosts) == 0 || hosts[len(hosts)-1] != name {
			hosts = append(hosts, name)
		}
	}
	return strings.Join(hosts, ",") + "/" + n.config.Database
}

func hostAndPort(host string, port uint16) string {
	if strings.HasPrefix(host, "/") || port == 5432 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// hosts goes over the hosts in their order; one that is tried with TLS and without comes twice.
func (n dsn) hosts(yield func(host string, port uint16) bool) {
	if !yield(n.config.Host, n.config.Port) {
		return
	}
	for _, other := range n.config.Fallbacks {
		if !yield(other.Host, other.Port) {
			return
		}
	}
}

// warnings are about a DSN, configured as it is written in the configuration.
func (n dsn) warnings(configured string) (found []string) {
	if !caddyconf.HasPlaceholder(configured) && n.config.Password != "" && strings.Contains(configured, n.config.Password) {
		found = append(found, "the DSN is part of what Caddy shows at /config/, with its password: write {env.HOOKS_DSN} and set that environment variable")
	}
	all := []*pgconn.FallbackConfig{{Host: n.config.Host, TLSConfig: n.config.TLSConfig}}
	for _, way := range append(all, n.config.Fallbacks...) {
		// Of sslmode verify-ca pgx makes a check of its own.
		isChecked := way.TLSConfig != nil && (!way.TLSConfig.InsecureSkipVerify || way.TLSConfig.VerifyPeerCertificate != nil)
		if !isChecked && !isThisMachine(way.Host) {
			return append(found, "the connection to "+way.Host+" does not check that it is the right server, which others may then read and change: add sslmode=verify-full to the DSN")
		}
	}
	return found
}

func isThisMachine(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || err == nil && address.IsLoopback()
}
