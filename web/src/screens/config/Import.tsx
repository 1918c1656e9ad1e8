import { Alert, Anchor, Button, FileButton, Group, Progress, Table, Text, Textarea } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { useState } from 'react'
import { ApiError } from '../../api/client'
import type { Definition, Kind } from '../../api/definitions'
import { useApp } from '../../app/context'
import { DiffView } from '../../editor/DiffView'
import { yamlOf } from '../../editor/yaml'
import { configText as t } from '../../text/config'
import { clusterText } from '../../text/cluster'
import { WideTable } from '../../widgets/WideTable'
import { failed, done as said } from '../../widgets/toast'
import css from './ConfigScreen.module.css'
import { merged, rank, read, type Document } from './documents'
import { inParallel } from './parallel'

/** The largest text that is read, in bytes. */
const mostBytes = 20 << 20

/** Requests at a time. */
const workers = 8

type Readable = Extract<Document, { kind: unknown }>

/** A document with what the server says to it. */
interface Line {
  document: Document
  change: 'create' | 'update' | 'same' | 'refused' | 'unread'
  /** What is stored under its name. */
  before?: Definition | undefined
  /** Warnings, or why it is refused. */
  said: string[]
  written?: 'written' | 'failed'
}

/** Writes the definitions of a file, after a dry run of each. */
export function Import({ namespace }: { namespace: string }) {
  const { definitions } = useApp()
  const [input, setInput] = useState('')
  const [over, setOver] = useState(false)
  const [problem, setProblem] = useState('')
  const [lines, setLines] = useState<Line[]>()
  const [progress, setProgress] = useState<{ done: number; of: number }>()
  const [open, setOpen] = useState<number>()
  const take = (text: string) => {
    setInput(text)
    setLines(undefined)
    setProblem('')
  }
  const takeFile = async (file: File | null | undefined) => {
    if (!file) return
    if (file.size > mostBytes) setProblem(t.tooLarge(clusterText.size(mostBytes)))
    else take(await file.text())
  }
  const check = useMutation({
    mutationFn: async () => {
      const documents = read(input, namespace)
      let n = 0
      setProgress({ done: 0, of: documents.length })
      setOpen(undefined)
      const out = await inParallel(documents, workers, async (document): Promise<Line> => {
        const line = 'problem' in document ? { document, change: 'unread' as const, said: [document.problem] } : await ask(document)
        setProgress({ done: ++n, of: documents.length })
        return line
      })
      setLines(out)
    },
    onSettled: () => setProgress(undefined),
  })
  const stored = async ({ metadata: { namespace = '', name = '' } = {} }: Definition, kind: Kind) => {
    try {
      return await definitions.one(kind, namespace, name)
    } catch (err) {
      if (err instanceof ApiError && err.missing) return undefined
      throw err
    }
  }
  const ask = async (document: Readable): Promise<Line> => {
    try {
      const { kind, definition } = document
      const { warnings } = await definitions.put(kind, definition, true)
      const before = await stored(definition, kind)
      const same = before && textOf(kind, before) === textOf(kind, merged(before, definition))
      return { document, before, change: !before ? 'create' : same ? 'same' : 'update', said: warnings }
    } catch (err) {
      return { document, change: 'refused', said: [err instanceof Error ? err.message : String(err)] }
    }
  }
  const due = (lines ?? []).filter(({ change, written }) => written !== 'written' && (change === 'create' || change === 'update'))
  const apply = useMutation({
    mutationFn: async () => {
      const undo: (() => Promise<unknown>)[] = []
      let n = 0
      let refused = 0
      setProgress({ done: 0, of: due.length })
      const mark = (line: Line, part: Partial<Line>) =>
        setLines((all) => all?.map((one) => (one.document.place === line.document.place ? { ...one, ...part } : one)))
      const ranks = [...new Set(due.map(({ document }) => rankOf(document)))].sort((a, b) => a - b)
      for (const wanted of ranks) {
        await inParallel(
          due.filter(({ document }) => rankOf(document) === wanted),
          workers,
          async (line) => {
            const { kind, definition } = line.document as Readable
            const { namespace: of = '', name = '' } = definition.metadata ?? {}
            try {
              await definitions.put(kind, definition)
              const { before } = line
              undo.unshift(() => (before ? definitions.put(kind, before) : definitions.delete(kind, of, name)))
              mark(line, { written: 'written' })
            } catch (err) {
              refused++
              mark(line, { written: 'failed', said: [err instanceof Error ? err.message : String(err)] })
            }
            setProgress({ done: ++n, of: due.length })
          },
        )
      }
      said(t.applied(n - refused, refused), async () => {
        for (const one of undo) await one()
        setLines(undefined)
      })
    },
    onError: (err) => failed(t.import, err),
    onSettled: () => setProgress(undefined),
  })
  const counts = { create: 0, update: 0, same: 0, refused: 0, unread: 0 }
  for (const { change } of lines ?? []) counts[change]++
  return (
    <div className={css.import}>
      <Text size="sm">{t.importHelp}</Text>
      <div
        className={css.drop}
        data-over={over}
        onDragOver={(event) => {
          event.preventDefault()
          setOver(true)
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault()
          setOver(false)
          void takeFile(event.dataTransfer.files[0])
        }}
      >
        <Textarea
          label={t.importText}
          autosize
          minRows={6}
          maxRows={lines ? 8 : 20}
          spellCheck={false}
          value={input}
          onChange={(event) => take(event.currentTarget.value)}
          placeholder={'type: CheckConfig\napi_version: core/v2\nmetadata:\n  name: disk\nspec: …'}
        />
      </div>
      {problem && (
        <Alert color="red" role="alert">
          {problem}
        </Alert>
      )}
      <Group gap="sm">
        <FileButton onChange={(file) => void takeFile(file)} accept=".yaml,.yml,.json,.txt">
          {(props) => (
            <Button {...props} variant="default" size="sm">
              {t.chooseFile}
            </Button>
          )}
        </FileButton>
        <Button
          size="sm"
          {...(lines ? { variant: 'default' } : {})}
          disabled={input.trim() === ''}
          loading={check.isPending}
          onClick={() => check.mutate()}
        >
          {t.check}
        </Button>
        {lines && (
          <Button size="sm" disabled={due.length === 0} loading={apply.isPending} onClick={() => apply.mutate()}>
            {t.apply(due.length)}
          </Button>
        )}
        <Text size="sm" c="dimmed" role="status">
          {progress
            ? (apply.isPending ? t.applying : t.asking)(progress.done, progress.of)
            : lines
              ? `${t.summary(counts)}. ${t.order}`
              : ''}
        </Text>
      </Group>
      {check.error && (
        <Alert color="red" role="alert">
          {check.error.message}
        </Alert>
      )}
      {progress && <Progress aria-label={t.progress} value={progress.of === 0 ? 100 : (100 * progress.done) / progress.of} />}
      {lines && (
        <WideTable minWidth={520}>
          <Table verticalSpacing={6} fz="sm">
            <Table.Thead>
              <Table.Tr>
                {Object.values(t.importColumns).map((title) => (
                  <Table.Th key={title}>{title}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {lines.map((line) => (
                <Row
                  key={line.document.place}
                  line={line}
                  open={open === line.document.place}
                  onOpen={(on) => setOpen(on ? line.document.place : undefined)}
                />
              ))}
            </Table.Tbody>
          </Table>
        </WideTable>
      )}
    </div>
  )
}

const rankOf = (document: Document): number => ('kind' in document ? rank(document.kind) : 0)

function Row({ line, open, onOpen }: { line: Line; open: boolean; onOpen: (on: boolean) => void }) {
  const { document, change, said, written } = line
  const readable = 'kind' in document
  const name = readable
    ? [document.definition.metadata?.namespace, document.definition.metadata?.name].filter(Boolean).join('/')
    : document.name
  return (
    <>
      <Table.Tr>
        <Table.Td>{document.place}</Table.Td>
        <Table.Td>{readable ? document.kind.type : document.type}</Table.Td>
        <Table.Td>
          {readable && (change === 'create' || change === 'update') ? (
            <Anchor component="button" type="button" fz="sm" ta="left" aria-expanded={open} title={t.show} onClick={() => onOpen(!open)}>
              {name}
            </Anchor>
          ) : (
            name
          )}
        </Table.Td>
        <Table.Td>
          <span className={css.word} data-change={written === 'failed' ? 'refused' : change}>
            {written ? t.results[written] : t.changesTo[change]}
          </span>
        </Table.Td>
        <Table.Td>
          {said.map((one, i) => (
            <div key={i}>{one}</div>
          ))}
        </Table.Td>
      </Table.Tr>
      {open && readable && (
        <Table.Tr>
          <Table.Td colSpan={5}>
            <Changes document={document} before={line.before} />
          </Table.Td>
        </Table.Tr>
      )}
    </>
  )
}

/** The stored definition and that of the file. */
function Changes({ document: { kind, definition }, before }: { document: Readable; before: Definition | undefined }) {
  return <DiffView before={before ? textOf(kind, before) : ''} after={textOf(kind, before ? merged(before, definition) : definition)} />
}

/** As YAML with its fields by name, so that only values differ. */
const textOf = (kind: Kind, definition: Definition): string =>
  yamlOf(kind, Object.fromEntries(Object.entries(definition).sort(([a], [b]) => (a < b ? -1 : 1))))
