// Package embedded is the kv engine for one machine: Pebble under optimistic
// concurrency control.
package embedded
