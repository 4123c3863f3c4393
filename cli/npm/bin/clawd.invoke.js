#!/usr/bin/env node
import { shim } from "../src/shim.js";

shim("clawd.invoke");
