package bolt

import "github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"

func waitFields(wait *local.Wait) []any { return []any{&wait.Due, &wait.Times, &wait.For} }

func encodeWait(wait local.Wait) []byte {
	return encodeFields(newEncoder(64+len(wait.For)), waitFields(&wait))
}

func decodeWait(key, data []byte) (wait local.Wait, err error) {
	err = decodeFields(key, data, waitFields(&wait))
	return wait, err
}
