package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
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
	pool, err := pgxpool.ParseConfig(text) // which takes what pgx takes, and the settings of pools
	if err != nil {
		var file *fs.PathError
		if errors.As(err, &file) {
			return dsn{}, fmt.Errorf("the DSN of the store names the file %s, which cannot be read: %w", file.Path, file.Err)
		}
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
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddyhooks"
	}
	return dsn{text, config}, nil
}

// dial opens a connection.
func (n dsn) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, hostTime*time.Duration(1+len(n.config.Fallbacks)))
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, n.config.Copy())
	if err != nil {
		return nil, n.plain(err)
	}
	return conn, nil
}

// dialError is why a connection could not be opened, without secrets.
type dialError struct {
	text string
	code string // of PostgreSQL, "" if the server did not answer
}

func (e *dialError) Error() string { return e.text }

// plain is an error without the password and on one line.
func (n dsn) plain(err error) error {
	plain := &dialError{text: strings.Join(strings.Fields(err.Error()), " ")}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		plain.code = refused.Code
		plain.text = fmt.Sprintf("%s: %s (%s)", n.place(), refused.Message, refused.Code)
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
