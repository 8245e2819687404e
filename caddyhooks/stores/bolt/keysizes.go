package bolt

import (
	"os"

	"github.com/google/uuid"
	"go.etcd.io/bbolt"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/gates"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/bolt/pages"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/stores/local"
)

// keySizes are the lengths of the keys in buckets where all have the same.
var keySizes = map[string]int{
	string(runsBucket):      len(uuid.UUID{}),
	string(startsBucket):    len(uuid.UUID{}),
	string(endedBucket):     len(uuid.UUID{}),
	string(outboxBucket):    len(local.DeliveryKey{}),
	string(settledBucket):   len(local.DeliveryKey{}),
	string(deadBucket):      len(local.DeliveryKey{}),
	string(keysBucket):      32,
	string(keyRunsBucket):   len(uuid.UUID{}),
	string(notableBucket):   digestSize + len(uuid.UUID{}),
	string(byHookBucket):    digestSize + len(uuid.UUID{}),
	string(byRequestBucket): digestSize + len(uuid.UUID{}),
	string(byChatBucket):    segmentPrefixSize + digestSize + len(uuid.UUID{}),
	string(chatsBucket):     chatKeySize,

	string(questionsBucket):  len(uuid.UUID{}) + 1,
	string(askedBucket):      len(uuid.UUID{}),
	string(gates.Bucket):     gates.KeySize,
	string(gates.AgesBucket): gates.AgesKeySize,
	string(openBucket):       len(local.OpenKey{}),

	string(newRunsBucket):     8,
	string(chatsByTimeBucket): len(uuid.UUID{}),
	string(turnsBucket):       chatKeySize + len(uuid.UUID{}),
	string(sessionsBucket):    len(sessionKey{}),
	string(sessionAgesBucket): len(sessionAge{}),
}

// checkPages checks the pages of a file, before the database looks at anything but the meta pages.
func checkPages(tx *bbolt.Tx) error {
	file, err := os.Open(tx.DB().Path())
	if err != nil {
		return err
	}
	defer file.Close()
	return pages.File{ReaderAt: file, PageSize: tx.DB().Info().PageSize, TxID: tx.ID()}.Check(keySizes)
}
