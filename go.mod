module github.com/coffer-ledger/coffer

go 1.26.0

require golang.org/x/text v0.42.0 // indirect
