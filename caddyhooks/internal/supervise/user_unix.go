//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/supervise/wrapper"
)

// asUser lets a program run as a user, with all groups of that user.
func asUser(order *wrapper.Order, name string) error {
	account, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, wrong := strconv.ParseUint(name, 10, 32); wrong == nil {
			account, err = user.LookupId(name)
		}
	}
	var unknownID user.UnknownUserIdError
	if errors.As(err, &unknown) || errors.As(err, &unknownID) {
		return fmt.Errorf("there is no user %q on this machine", name)
	}
	if err != nil {
		return fmt.Errorf("looking up the user %q: %w", name, err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return fmt.Errorf("the user %q has no usable number: %w", name, err)
	}
	if os.Geteuid() != 0 {
		if int(uid) == os.Geteuid() {
			return nil
		}
		return fmt.Errorf("only root may run a program as another user (%q)", name)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return fmt.Errorf("the user %q has no usable group: %w", name, err)
	}
	order.AsUser, order.UID, order.GID = true, uint32(uid), uint32(gid)
	groups, err := account.GroupIds()
	if err != nil {
		return fmt.Errorf("looking up the groups of %q: %w", name, err)
	}
	for _, group := range groups {
		if id, err := strconv.ParseUint(group, 10, 32); err == nil {
			order.Groups = append(order.Groups, uint32(id))
		}
	}
	return nil
}
