module step-name

go 1.24
