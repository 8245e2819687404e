package wrapper

import (
	"errors"
	"strconv"
	"time"
)

// Verb is what a wrapper is called with, before the mark of its program.
var Verb = [2]string{"hooks", "exec"}

// Mark is the variable that marks the processes of a program. A program may give some of them marks below its own: behind a slash.
const Mark = "HOOKS_TURN"

// Below reports whether a mark is that of a program, or one below it.
func Below(program, mark string) bool {
	n := len(program)
	return mark == program || len(mark) > n && mark[:n] == program && mark[n] == '/'
}

// Control is the descriptor of the socket to Caddy.
const Control = 3

// The kinds of messages. Each is its kind, the length of its text in four bytes, and the text.
const (
	KindOrder      = 'O' // to the wrapper: an Order
	KindStop       = 'S' // to the wrapper: end the program, with its grace in milliseconds
	KindStarting   = 'B' // from the wrapper: from now on the program may run
	KindStarted    = 'P' // from the wrapper: the number of the program's process and when it was started
	KindNotStarted = 'E' // from the wrapper, the last one: the number of the system's error
	KindLeft       = 'L' // from the wrapper: exit code, signal, and processes that it could not end in time
	KindExit       = 'X' // from the wrapper, the last one: exit code and signal
)

// MaxMessage is the most that a message can hold: more than the kernel takes as arguments and environment.
const MaxMessage = 64 << 20

// HeaderSize is the length of what stands before the text of a message.
const HeaderSize = 5

// Message makes a message.
func Message(kind byte, text string) []byte {
	size := len(text)
	return append([]byte{kind, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, text...)
}

// Header reads what stands before the text of a message.
func Header(header [HeaderSize]byte) (kind byte, size int, err error) {
	size = int(header[1])<<24 | int(header[2])<<16 | int(header[3])<<8 | int(header[4])
	if size > MaxMessage {
		return 0, 0, errors.New("message too long")
	}
	return header[0], size, nil
}

// Numbers makes the text of a message of numbers.
func Numbers(numbers ...int64) string {
	var text []byte
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

// ReadNumbers reads a text of Numbers.
func ReadNumbers(text string) (numbers []int64, err error) {
	if text == "" {
		return nil, nil
	}
	for _, word := range split(text, ' ') {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// Order is a program to be run. None of its texts holds a NUL character.
type Order struct {
	Path string // the file of the program
	Args []string
	Env  []string
	Dir  string
	Turn string // the mark of its processes, in Env too; "" for none

	// The user it runs as, if AsUser.
	AsUser   bool
	UID, GID uint32
	Groups   []uint32
}

// Text is the order as the text of a message.
func (o Order) Text() string {
	var user string
	if o.AsUser {
		ids := []int64{int64(o.UID), int64(o.GID)}
		for _, group := range o.Groups {
			ids = append(ids, int64(group))
		}
		user = Numbers(ids...)
	}
	size := 0
	fields := append([]string{o.Path, o.Dir, o.Turn, user, strconv.Itoa(len(o.Args))}, o.Args...)
	fields = append(fields, o.Env...)
	for _, field := range fields {
		size += len(field) + 1
	}
	text := make([]byte, 0, size)
	for i, field := range fields {
		if i > 0 {
			text = append(text, 0)
		}
		text = append(text, field...)
	}
	return string(text)
}

// ReadOrder reads the text of an order.
func ReadOrder(text string) (o Order, err error) {
	fields := split(text, 0)
	const fixed = 5
	if len(fields) < fixed {
		return Order{}, errors.New("order too short")
	}
	o.Path, o.Dir, o.Turn = fields[0], fields[1], fields[2]
	ids, err := ReadNumbers(fields[3])
	if err != nil {
		return Order{}, err
	}
	if len(ids) >= 2 {
		o.AsUser, o.UID, o.GID = true, uint32(ids[0]), uint32(ids[1])
		for _, id := range ids[2:] {
			o.Groups = append(o.Groups, uint32(id))
		}
	}
	args, err := strconv.Atoi(fields[4])
	if err != nil || args < 0 || args > len(fields)-fixed {
		return Order{}, errors.New("wrong number of arguments")
	}
	o.Args, o.Env = fields[fixed:fixed+args], fields[fixed+args:]
	return o, nil
}

func split(text string, at byte) (parts []string) {
	begin := 0
	for i := range len(text) {
		if text[i] == at {
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	return append(parts, text[begin:])
}

// SweepPatience is how long Caddy waits for what does not end. The wrapper goes on after that.
const SweepPatience = 10 * time.Second
