package access

import (
	"fmt"
	"slices"
	"strings"
)

// Roles is a set of roles. The zero value is none.
type Roles uint8

// The roles. What each may call is the table in package rpc.
const (
	// Service is a program that works for orders and customers.
	Service Roles = 1 << iota
	// Operator runs the ledger for a tenant, or for all: it may do everything.
	Operator
	// Auditor reads everything and changes nothing.
	Auditor
	// Monitor sees how the nodes are, and none of the data.
	Monitor
)

// Any are all roles.
const Any = Service | Operator | Auditor | Monitor

// roleNames are the roles' names in the order of their bits.
var roleNames = []string{"service", "operator", "auditor", "monitor"}

// ParseRole reads a role's name; its error says which there are.
func ParseRole(name string) (Roles, error) {
	i := slices.Index(roleNames, name)
	if i < 0 {
		return 0, fmt.Errorf("role is %s (allowed: %s)", shown(name), strings.Join(roleNames, ", "))
	}
	return 1 << i, nil
}

// Names lists the roles of the set.
func (r Roles) Names() []string {
	var out []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// String lists the roles, with commas between.
func (r Roles) String() string { return strings.Join(r.Names(), ", ") }
