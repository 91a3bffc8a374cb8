package rpc

import (
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2/connecthttp"
)

// mediaMux makes handlers say which content types they take, where they refuse
// one without a word.
type mediaMux struct{ connecthttp.ServeMux }

func (m mediaMux) Handle(pattern string, h http.Handler) {
	m.ServeMux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !ofClients(r.Header.Get("Content-Type")) {
			w = &mediaWriter{ResponseWriter: w, sent: r.Header.Get("Content-Type")}
		}
		h.ServeHTTP(w, r)
	}))
}

// ofClients reports whether only the client of a protocol sends a content type,
// and no person: it knows what is taken, and needs no words.
func ofClients(contentType string) bool {
	return contentType == "application/proto" || strings.HasPrefix(contentType, "application/grpc") ||
		strings.HasPrefix(contentType, "application/connect")
}

// mediaWriter adds to status 415, which has no body, what the header Accept-Post
// says.
type mediaWriter struct {
	http.ResponseWriter
	sent string
}

// WriteHeader writes the header and, for 415, the body.
func (w *mediaWriter) WriteHeader(status int) {
	accepted := w.Header().Get("Accept-Post")
	if status != http.StatusUnsupportedMediaType || accepted == "" {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	var types []string
	for t := range strings.SplitSeq(accepted, ", ") {
		if !strings.Contains(t, ";") && !strings.HasPrefix(t, "application/grpc") { // the same with a charset, or no person's to write
			types = append(types, t)
		}
	}
	said := "the request has no Content-Type"
	if w.sent != "" {
		said = fmt.Sprintf("Content-Type %.80q is not taken by this call", w.sent)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.ResponseWriter.WriteHeader(status)
	_, _ = fmt.Fprintf(w.ResponseWriter, "%s (allowed: %s, gRPC, gRPC-Web)\n", said, strings.Join(types, ", "))
}

// Unwrap is for http.ResponseController.
func (w *mediaWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for streams.
func (w *mediaWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
