// em in opencode. `em install opencode` wrote this file, `em uninstall opencode` removes it.
//
// Each event goes to em's hook, a program that answers within 0.3 seconds or says nothing. What it
// says is added to the request for the model: at a prompt as a part that is marked as not the
// user's, after a failed call beside its result. Nothing here can stop opencode.

import { spawn, spawnSync } from "node:child_process"
import { existsSync, readdirSync, statSync } from "node:fs"
import { homedir } from "node:os"
import { isAbsolute, join } from "node:path"

const HOOK = "em's hook"
const SERVER = "em's MCP server"
const SKILLS = "em's skills"
const PATIENCE = 2000

// The file with the sessions, as opencode finds it.
function database() {
  const data = join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "opencode")
  const given = process.env.OPENCODE_DB
  if (given) return isAbsolute(given) ? given : join(data, given)
  const usual = join(data, "opencode.db")
  if (existsSync(usual)) return usual
  const age = (file) => statSync(file).mtimeMs
  const found = readdirSync(data).filter((name) => /^opencode-.*\.db$/.test(name))
  return found.map((name) => join(data, name)).sort((a, b) => age(b) - age(a))[0] || usual
}

// The text that a hook's answer has for the model.
function said(answer) {
  try {
    return JSON.parse(answer).hookSpecificOutput.additionalContext || ""
  } catch {
    return ""
  }
}

function ask(question) {
  return new Promise((resolve) => {
    const hook = spawn(HOOK[0], HOOK.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const late = setTimeout(() => hook.kill(), PATIENCE)
    let answer = ""
    hook.stdout.on("data", (part) => (answer += part))
    hook.on("error", () => resolve(""))
    hook.on("close", () => {
      clearTimeout(late)
      resolve(said(answer))
    })
    hook.stdin.on("error", () => {})
    hook.stdin.end(JSON.stringify(question))
  })
}

// A session that goes idle may be the last thing before opencode ends, so this waits for the hook.
function tell(question) {
  spawnSync(HOOK[0], HOOK.slice(1), {
    input: JSON.stringify(question),
    stdio: ["pipe", "ignore", "ignore"],
    timeout: PATIENCE,
  })
}

function failure(part) {
  if (part.type !== "tool") return
  if (part.state.status === "error") return part.state.error
  const exit = part.state.status === "completed" && part.state.metadata?.exit
  return exit ? part.state.output : undefined
}

export const Em = async ({ directory }) => {
  const children = new Set()
  const notes = new Map()
  const event = (name, session, more) => ({
    hook_event_name: name,
    session_id: session,
    transcript_path: database(),
    cwd: directory,
    ...more,
  })

  async function note(part, error) {
    const call = { tool_name: part.tool, tool_input: part.state.input, tool_use_id: part.callID }
    return ask(event("PostToolUseFailure", part.sessionID, { ...call, error: String(error) }))
  }

  return {
    config: async (config) => {
      config.mcp = { em: { type: "local", command: SERVER, enabled: true }, ...config.mcp }
      const paths = [...(config.skills?.paths ?? []), SKILLS]
      config.skills = { ...config.skills, paths }
    },

    event: async ({ event: { type, properties } }) => {
      try {
        if (type === "session.created" && properties.info?.parentID)
          children.add(properties.info.id)
        if (type === "session.idle") tell(event("SessionEnd", properties.sessionID))
      } catch {}
    },

    "chat.message": async ({ sessionID }, { message, parts }) => {
      try {
        if (children.has(sessionID)) return // a sub-agent: its task is not the user's
        const texts = parts.filter((part) => part.type === "text" && !part.synthetic)
        const prompt = texts.map((part) => part.text).join("\n")
        const text = await ask(event("UserPromptSubmit", sessionID, { prompt }))
        const last = parts[parts.length - 1]
        if (!text || !last) return
        // Parts are in the order of their ids.
        const id = `${last.id}em`
        parts.push({ id, sessionID, messageID: message.id, type: "text", synthetic: true, text })
      } catch {}
    },

    // The stored session keeps what the call printed: em reads it from there.
    "experimental.chat.messages.transform": async (_, { messages }) => {
      try {
        const newest = messages[messages.length - 1]
        for (const message of messages)
          for (const part of message.parts) {
            const error = failure(part)
            if (error === undefined) continue
            if (!notes.has(part.callID) && message === newest)
              notes.set(part.callID, await note(part, error))
            const text = notes.get(part.callID)
            const field = part.state.status === "error" ? "error" : "output"
            if (text) part.state[field] += `\n\n${text}`
          }
      } catch {}
    },
  }
}
