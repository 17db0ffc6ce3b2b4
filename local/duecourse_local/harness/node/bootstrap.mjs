// A Node function's process: what AWS's own client for Node does against the Runtime API, as far as a handler can tell.
//
// node bootstrap.mjs <file.export>, with Lambda's variables in the environment. (AWS's package aws-lambda-ric compiles
// a native part when it is installed; fetch gives up on an answer after 300 s, and the next invocation may take longer.)
import { access } from "node:fs/promises";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
const ENDINGS = [".js", ".mjs", ".cjs"];

/** One call of the Runtime API; `via` false is a connection of its own. */
function call(method, path, body, via = agent) {
  const data = Buffer.from(body ?? "");
  return new Promise((resolve, reject) => {
    const headers = { "Content-Type": "application/json", "Content-Length": data.length };
    const asked = request({ agent: via, host, port, method, path: `/2018-06-01/runtime/${path}`, headers }, (answer) => {
      const chunks = [];
      answer.on("data", (chunk) => chunks.push(chunk));
      answer.on("end", () => resolve({ headers: answer.headers, body: Buffer.concat(chunks).toString() }));
      answer.on("error", reject);
    });
    asked.on("error", reject);
    asked.end(data);
  });
}

/** An error as Lambda shows it. */
function told(error) {
  const known = error instanceof Error;
  return JSON.stringify({
    errorType: known ? error.name : typeof error,
    errorMessage: known ? error.message : String(error),
    trace: known && error.stack ? error.stack.split("\n") : [],
  });
}

/** An error of the runtime itself. */
const runtimeError = (name, message) => Object.assign(new Error(message), { name: `Runtime.${name}` });

/** What importing a file did, with Lambda's own words for what goes wrong. */
async function imported(file) {
  try {
    return await import(pathToFileURL(file).href);
  } catch (error) {
    if (error instanceof SyntaxError) throw runtimeError("UserCodeSyntaxError", String(error));
    throw error?.code === "MODULE_NOT_FOUND" ? runtimeError("ImportModuleError", String(error)) : error;
  }
}

async function load(named) {
  const dot = named.indexOf(".", named.lastIndexOf("/") + 1);
  if (dot < 0) throw runtimeError("MalformedHandlerName", `Bad handler: '${named}' must be <file>.<export>`);
  const file = join(process.env.LAMBDA_TASK_ROOT, named.slice(0, dot));
  for (const ending of ENDINGS) {
    const there = await access(file + ending).then(() => true, () => false);
    if (!there) continue;
    const module = await imported(file + ending);
    const names = named.slice(dot + 1).split(".");
    const found = [module, module.default].map((top) => names.reduce((at, name) => at?.[name], top));
    const handler = found.find((value) => typeof value === "function");
    if (handler) return handler;
    throw runtimeError("HandlerNotFound", `${named} is undefined or not exported`);
  }
  throw runtimeError("ImportModuleError", `Cannot find module '${file}'`);
}

function contextOf(headers, done) {
  const deadline = Number(headers["lambda-runtime-deadline-ms"]);
  const custom = headers["lambda-runtime-client-context"];
  return {
    awsRequestId: headers["lambda-runtime-aws-request-id"],
    invokedFunctionArn: headers["lambda-runtime-invoked-function-arn"],
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: process.env.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: process.env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: process.env.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: process.env.AWS_LAMBDA_LOG_STREAM_NAME,
    clientContext: custom ? JSON.parse(custom) : undefined,
    callbackWaitsForEmptyEventLoop: true,
    getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()),
    succeed: (value) => done(null, value),
    fail: (error) => done(error ?? new Error("handled")),
    done,
  };
}

/** The handler's answer: what it returns a promise of, or gives to its callback; null where nothing more can come. */
function run(handler, event, headers) {
  return new Promise((resolve, reject) => {
    const done = (error, value) => (error == null ? resolve(value) : reject(error));
    nothingLeft = () => resolve(null);
    const returned = handler(event, contextOf(headers, done), done);
    if (typeof returned?.then !== "function") return;
    returned.then(resolve, reject);
    nothingLeft = () => reject(runtimeError("NodeJsExit", "The handler's promise was never settled, and nothing is left to run."));
  });
}

let handler;
let serving = null;
let nothingLeft = () => {};
// By a connection of its own: the other one may be waiting for the next invocation.
function report(error) {
  console.error(error);
  const path = serving ? `invocation/${serving}/error` : "init/error";
  return call("POST", path, told(error), false).finally(() => process.exit(1));
}

// What nobody awaited ends the process, as on Lambda, but not without a word.
process.on("uncaughtException", (error) => report(error));
process.on("unhandledRejection", (reason) => report(runtimeError("UnhandledPromiseRejection", String(reason))));
process.on("beforeExit", () => nothingLeft());

try {
  nothingLeft = () => report(runtimeError("NodeJsExit", "The module's top-level await was never settled."));
  handler = await load(process.argv[2]);
} catch (error) {
  await report(error);
}
await new Promise(setImmediate); // what the module left unawaited is told before the first invocation

for (;;) {
  const { headers, body } = await call("GET", "invocation/next");
  serving = headers["lambda-runtime-aws-request-id"];
  process.env._X_AMZN_TRACE_ID = headers["lambda-runtime-trace-id"] ?? "";
  try {
    const value = await run(handler, JSON.parse(body), headers);
    await call("POST", `invocation/${serving}/response`, JSON.stringify(value) ?? "null");
  } catch (error) {
    console.error(error);
    await call("POST", `invocation/${serving}/error`, told(error));
  }
  serving = null;
}
