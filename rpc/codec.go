package rpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coffer-ledger/coffer/ledger"
)

// The codecs of the server are the standard ones, but that they name the field
// when a string is not UTF-8, and that JSON refuses fields it does not know.
// Reading costs nothing more for messages that are well formed.

type binaryCodec struct{ *connectproto.BinaryCodec }

type jsonCodec struct{ *connectproto.JSONCodec }

func codecs() []connect.Codec {
	strict := connectproto.NewJSONCodec()
	strict.UnmarshalOptions.DiscardUnknown = false
	return []connect.Codec{binaryCodec{connectproto.NewBinaryCodec()}, jsonCodec{strict}}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBytes keeps the buffer of a rare large message out of the pool.
const maxPooledBytes = 1 << 20

// read buffers src, and gives the bytes to use.
func read(src io.Reader, use func([]byte) error) error {
	buf, _ := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= maxPooledBytes {
			buf.Reset()
			buffers.Put(buf)
		}
	}()
	if _, err := buf.ReadFrom(src); err != nil {
		return err
	}
	return use(buf.Bytes())
}

// UnmarshalRead decodes a binary message.
func (c binaryCodec) UnmarshalRead(_ context.Context, src io.Reader, msg any) error {
	m, ok := msg.(proto.Message)
	if !ok {
		return fmt.Errorf("%w: got %T", connectproto.ErrNotProtoMessage, msg)
	}
	return read(src, func(b []byte) error {
		err := c.UnmarshalOptions.Unmarshal(b, m)
		if err == nil {
			return nil
		}
		if field, value, found := invalidString(m.ProtoReflect().Descriptor(), b, "", maxDepth); found {
			return notUTF8(field, value)
		}
		return err
	})
}

// UnmarshalRead decodes a JSON message.
func (c jsonCodec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	return read(src, func(b []byte) error {
		err := c.JSONCodec.UnmarshalRead(ctx, bytes.NewReader(b), msg)
		if err == nil || utf8.Valid(b) {
			return err
		}
		return notUTF8(invalidJSON(b))
	})
}

func notUTF8(field string, value []byte) *ledger.Rejection {
	return &ledger.Rejection{
		Code: ledger.InvalidArgument, Field: field, Value: fmt.Sprintf("%.40q", value),
		Limit: "UTF-8", Message: "is not valid UTF-8",
	}
}

// maxDepth bounds the search for the field; no message of the schema is
// nested deeper.
const maxDepth = 8

// invalidString finds the first string field of an encoded message that is not
// UTF-8. Members of a command's oneof are named without the oneof, as in every
// other error of a batch.
func invalidString(md protoreflect.MessageDescriptor, b []byte, path string, depth int) (field string, value []byte, found bool) {
	seen := map[protowire.Number]int{}
	for len(b) > 0 && depth > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "", nil, false
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return "", nil, false
		}
		raw := b[:n]
		b = b[n:]
		fd := md.Fields().ByNumber(num)
		if fd == nil || typ != protowire.BytesType {
			continue
		}
		v, _ := protowire.ConsumeBytes(raw)
		name := path + string(fd.Name())
		if fd.IsList() {
			name = fmt.Sprintf("%s[%d]", name, seen[num])
			seen[num]++
		}
		switch {
		case fd.Kind() == protoreflect.StringKind && !utf8.Valid(v):
			return name, v, true
		case fd.Kind() == protoreflect.MessageKind:
			inner := name + "."
			if fd.ContainingOneof() != nil {
				inner = path
			}
			if field, value, found = invalidString(fd.Message(), v, inner, depth-1); found {
				return field, value, true
			}
		}
	}
	return "", nil, false
}

// invalidJSON names what is wrong in a JSON text with bytes that are not UTF-8:
// the last key before them, as far as a look at the text tells.
func invalidJSON(b []byte) (field string, value []byte) {
	at := 0
	for at < len(b) {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	field = "message"
	start := bytes.LastIndexByte(b[:at], '"') + 1
	if colon := bytes.LastIndexByte(b[:start], ':'); colon >= 0 {
		if end := bytes.LastIndexByte(b[:colon], '"'); end >= 0 {
			if open := bytes.LastIndexByte(b[:end], '"'); open >= 0 {
				field = string(b[open+1 : end])
			}
		}
	}
	value = b[start:]
	if end := bytes.IndexByte(value, '"'); end >= 0 {
		value = value[:end]
	}
	return field, value
}
