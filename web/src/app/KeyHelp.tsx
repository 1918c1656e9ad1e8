import { Modal, Table } from '@mantine/core'
import { useDisclosure, useWindowEvent } from '@mantine/hooks'
import { text } from '../text'
import { isCovered, isTyping } from '../widgets/use-keys'

/** The list of keys, opened by "?". */
export function KeyHelp() {
  const [opened, { open, close }] = useDisclosure()
  useWindowEvent('keydown', (event) => {
    if (event.key === '?' && !event.ctrlKey && !event.metaKey && !isCovered() && !isTyping(event.target)) open()
  })
  return (
    <Modal opened={opened} onClose={close} title={text.keys} closeButtonProps={{ 'aria-label': text.close }}>
      <Table verticalSpacing={6}>
        <Table.Tbody>
          {text.keyHelp.map(([keys, help]) => (
            <Table.Tr key={help}>
              <Table.Td w={140}>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </Table.Td>
              <Table.Td>{help}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  )
}
